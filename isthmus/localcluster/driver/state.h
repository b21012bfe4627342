/*
 * What the parts of the library share: the cards as they were when NVML was initialised, and the handles given out.
 */
#ifndef ISTHMUS_STATE_H
#define ISTHMUS_STATE_H

#include "cards.h"
#include "nvml.h"

/* What an nvmlDevice_t points to: a card, or one of its MIG instances. An nvmlGpuInstance_t and an nvmlComputeInstance_t
 * point to the device of their instance. */
struct device {
    struct card *card;
    struct mig_instance *instance; /* NULL: the whole card */
};

/* The checks that every call on a device begins with; `answer` is where the result goes. */
nvmlReturn_t nvml_check(const struct device *device, const void *answer);

/* The n-th instance of a card, and the device of a whole card. */
struct device *nvml_instance(const struct card *card, unsigned index);
struct device *nvml_whole(const struct card *card);

const struct mig_profile *nvml_profile(const struct device *device);

#define CHECK(device, answer)                              \
    do {                                                   \
        nvmlReturn_t checked = nvml_check(device, answer); \
        if (checked != NVML_SUCCESS)                       \
            return checked;                                \
    } while (0)

/* The same for calls that a MIG device does not answer. */
#define CHECK_CARD(device, answer)               \
    do {                                         \
        CHECK(device, answer);                   \
        if ((device)->instance != NULL)          \
            return NVML_ERROR_NOT_SUPPORTED;     \
    } while (0)

/* The same for calls on a MIG device alone. */
#define CHECK_INSTANCE(device, answer)           \
    do {                                         \
        CHECK(device, answer);                   \
        if ((device)->instance == NULL)          \
            return NVML_ERROR_INVALID_ARGUMENT;  \
    } while (0)

#endif
