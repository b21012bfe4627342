/*
 * libnvidia-ml.so.1 for a machine without NVIDIA cards.
 *
 * The real NVIDIA device plugin (and any other program that asks NVML) finds the cards that the file `cards` beside
 * this library describes; see cards.h. What cannot be known without a card - temperature, power, clocks, processes - is
 * answered with NVML_ERROR_NOT_SUPPORTED, as real cards do for what they lack; nothing is invented. It will not compute.
 *
 * A card whose state says `xid N` is reported once to every event set that watches it, which is how the device plugin
 * learns that a card is bad. It stays listed, as a card that fell off the bus does until the driver is loaded again.
 *
 * The list is read when NVML is initialised and handles stay valid until it is shut down for the last time. Only the
 * state of a card is read anew while somebody waits for events.
 */
#include "state.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 250
#define NO_INSTANCE 0xffffffffu

struct event_set {
    unsigned long long types[CARDS_MAX]; /* watched event types by position in `list`; 0: not watched */
    int reported[CARDS_MAX];
};

static struct card_list list;
static struct device whole[CARDS_MAX];
static struct device parts[CARDS_MAX][INSTANCES_MAX];
static unsigned users; /* calls of nvmlInit that no nvmlShutdown has answered */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The folder of this library, or of the program where it is linked in statically. */
static const char *own_folder(char path[PATH_MAX])
{
    Dl_info info;
    if (dladdr((void *)&nvmlInit_v2, &info) != 0 && info.dli_fname != NULL && realpath(info.dli_fname, path) != NULL)
        return dirname(path);
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length <= 0)
        return NULL;
    path[length] = '\0';
    return dirname(path);
}

static nvmlReturn_t load(struct card_list *into)
{
    char path[PATH_MAX];
    switch (cards_load(own_folder(path), into)) {
    case CARDS_OK:
        return NVML_SUCCESS;
    case CARDS_ABSENT:
        return NVML_ERROR_DRIVER_NOT_LOADED;
    default:
        return NVML_ERROR_UNKNOWN;
    }
}

/* The handles of the cards in `list` and of their instances. */
static void make_handles(void)
{
    for (unsigned index = 0; index < CARDS_MAX; index++) {
        struct card *card = &list.cards[index];
        whole[index] = (struct device){card, NULL};
        for (unsigned at = 0; at < INSTANCES_MAX; at++)
            parts[index][at] = (struct device){card, &card->instances[at]};
    }
}

struct device *nvml_whole(const struct card *card)
{
    return &whole[card - list.cards];
}

struct device *nvml_instance(const struct card *card, unsigned index)
{
    return index < card->instance_count ? &parts[card - list.cards][index] : NULL;
}

const struct mig_profile *nvml_profile(const struct device *device)
{
    return &device->card->profiles[device->instance->profile];
}

static int is_handle(const struct device *device)
{
    if (device >= whole && device < whole + list.count)
        return 1;
    for (unsigned index = 0; index < list.count; index++)
        if (device >= parts[index] && device < parts[index] + list.cards[index].instance_count)
            return 1;
    return 0;
}

nvmlReturn_t nvml_check(const struct device *device, const void *answer)
{
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    return answer != NULL && is_handle(device) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t copy_text(const char *text, char *into, unsigned length)
{
    if (into == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(into, text);
    return NVML_SUCCESS;
}

/* ---- the library ---- */

NVML_API nvmlReturn_t nvmlInit_v2(void)
{
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = users > 0 ? NVML_SUCCESS : load(&list);
    if (result == NVML_SUCCESS && users++ == 0)
        make_handles();
    pthread_mutex_unlock(&lock);
    return result;
}

NVML_API nvmlReturn_t nvmlInit(void)
{
    return nvmlInit_v2();
}

NVML_API nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags; /* NVML_INIT_FLAG_NO_GPUS and NO_ATTACH change nothing here: no card is attached to */
    return nvmlInit_v2();
}

NVML_API nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (users > 0)
        users--;
    pthread_mutex_unlock(&lock);
    return result;
}

NVML_API const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
        return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT:
        return "Timeout";
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost";
    case NVML_ERROR_MEMORY:
        return "Insufficient Memory";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return "Argument version mismatch";
    default:
        return "Unknown Error";
    }
}

/* ---- the system ---- */

NVML_API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    return users == 0 ? NVML_ERROR_UNINITIALIZED : copy_text(list.driver_version, version, length);
}

NVML_API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    char text[96]; /* NVML's own version is the CUDA major version and the driver's version */
    snprintf(text, sizeof text, "%d.%s", list.cuda_version / 1000, list.driver_version);
    return users == 0 ? NVML_ERROR_UNINITIALIZED : copy_text(text, version, length);
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    if (version == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    *version = list.cuda_version;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

/* ---- finding devices ---- */

NVML_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = list.count;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (device == NULL || index >= list.count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &whole[index];
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (uuid == NULL || device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned index = 0; index < list.count; index++) {
        if (strcmp(list.cards[index].uuid, uuid) == 0) {
            *device = &whole[index];
            return NVML_SUCCESS;
        }
        for (unsigned at = 0; at < list.cards[index].instance_count; at++)
            if (strcmp(list.cards[index].instances[at].uuid, uuid) == 0) {
                *device = &parts[index][at];
                return NVML_SUCCESS;
            }
    }
    return NVML_ERROR_NOT_FOUND;
}

/* NVML takes the bus id with a domain of four or eight digits, in either case. */
NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    unsigned domain, bus, slot;
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (bus_id == NULL || device == NULL || sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) != 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned index = 0; index < list.count; index++)
        if (domain == 0 && slot == 0 && list.cards[index].pci_bus == bus) {
            *device = &whole[index];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

/* ---- what a device is ---- */

NVML_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    CHECK(device, uuid);
    return copy_text(device->instance != NULL ? device->instance->uuid : device->card->uuid, uuid, length);
}

NVML_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    char text[128]; /* a MIG device is named after its card and its profile */
    CHECK(device, name);
    if (device->instance == NULL)
        return copy_text(device->card->name, name, length);
    snprintf(text, sizeof text, "%s MIG %s", device->card->name, nvml_profile(device)->name);
    return copy_text(text, name, length);
}

NVML_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    CHECK(device, index);
    *index = (unsigned)(device->instance != NULL ? device->instance - device->card->instances : device - whole);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    CHECK_CARD(device, minor);
    *minor = device->card->minor;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, int *brand)
{
    CHECK(device, brand);
    *brand = device->card->brand;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture)
{
    CHECK(device, architecture);
    *architecture = device->card->architecture;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    CHECK(device, major);
    if (minor == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = device->card->compute_major;
    *minor = device->card->compute_minor;
    return NVML_SUCCESS;
}

static unsigned long long memory_bytes(const struct device *device)
{
    return (device->instance != NULL ? nvml_profile(device)->memory_mib : device->card->memory_mib) << 20;
}

/* All of the memory is free: nothing computes here. */
NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    CHECK(device, memory);
    memory->total = memory->free = memory_bytes(device);
    memory->used = 0;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    CHECK(device, memory);
    if (memory->version != NVML_MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory->total = memory->free = memory_bytes(device);
    memory->used = memory->reserved = 0;
    return NVML_SUCCESS;
}

/* Only version 3 of this call: the older ones fill smaller structs, and nobody we run asks for them. */
NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    CHECK(device, pci);
    memset(pci, 0, sizeof *pci);
    pci->bus = device->card->pci_bus;
    pci->pciDeviceId = device->card->pci_device_id;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus & 0xff);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus & 0xff);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode)
{
    char path[PATH_MAX];
    CHECK_CARD(device, mode);
    *mode = cards_mode(own_folder(path), device->card->uuid);
    return NVML_SUCCESS;
}

/* Kept beside the cards, where only containers that see all cards may write; it changes nothing else here. */
NVML_API nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned mode)
{
    char path[PATH_MAX];
    CHECK_CARD(device, device);
    if (mode > NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        return NVML_ERROR_INVALID_ARGUMENT;
    return cards_set_mode(own_folder(path), device->card->uuid, mode) ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

NVML_API nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, int *mode)
{
    CHECK(device, mode);
    *mode = 0; /* NVML_GPU_VIRTUALIZATION_MODE_NONE */
    return NVML_SUCCESS;
}

/* ---- what this library does not know ---- */

#define NOT_SUPPORTED(function, type)                              \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, type *answer) \
    {                                                              \
        CHECK(device, answer);                                     \
        return NVML_ERROR_NOT_SUPPORTED;                           \
    }

NOT_SUPPORTED(nvmlDeviceGetNumaNodeId, unsigned)
NOT_SUPPORTED(nvmlDeviceGetGpuFabricInfo, void)
NOT_SUPPORTED(nvmlDeviceGetGpuFabricInfoV, void)
NOT_SUPPORTED(nvmlDeviceGetUtilizationRates, void)
NOT_SUPPORTED(nvmlDeviceGetPowerUsage, unsigned)

NVML_API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *temperature)
{
    (void)sensor;
    CHECK(device, temperature);
    return NVML_ERROR_NOT_SUPPORTED;
}

/* ---- events: the health of a card ---- */

NVML_API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    CHECK(device, types);
    *types = nvmlEventTypeXidCriticalError;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (set == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *set = calloc(1, sizeof **set);
    return *set == NULL ? NVML_ERROR_MEMORY : NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    free(set);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    CHECK_CARD(device, set);
    if ((types & ~nvmlEventTypeXidCriticalError) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    set->types[device - whole] |= types;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, int *level)
{
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (one == NULL || other == NULL || level == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *level = one == other ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_HOSTBRIDGE; /* assumed: one host bridge, no NVLink */
    return NVML_SUCCESS;
}

static unsigned xid_now(const struct card_list *now, const char *uuid)
{
    for (unsigned index = 0; index < now->count; index++)
        if (strcmp(now->cards[index].uuid, uuid) == 0)
            return now->cards[index].xid;
    return 0; /* taken out of the file: not an error of the card */
}

/* Fill `data` with an error that this set has not seen. Returns 1 if there is one. A healed card may fail again. */
static int next_event(nvmlEventSet_t set, nvmlEventData_t *data)
{
    struct card_list now;
    if (load(&now) != NVML_SUCCESS)
        return 0; /* the file is being looked at again in POLL_MS */
    for (unsigned index = 0; index < list.count; index++) {
        unsigned xid = xid_now(&now, list.cards[index].uuid);
        int is_new = xid != 0 && !set->reported[index];
        set->reported[index] = xid != 0;
        if (is_new && (set->types[index] & nvmlEventTypeXidCriticalError) != 0) {
            *data = (nvmlEventData_t){&whole[index], nvmlEventTypeXidCriticalError, xid, NO_INSTANCE, NO_INSTANCE};
            return 1;
        }
    }
    return 0;
}

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

static void sleep_ms(long long duration)
{
    struct timespec span = {duration / 1000, duration % 1000 * 1000000};
    nanosleep(&span, NULL);
}

NVML_API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms)
{
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (set == NULL || data == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    long long end = now_ms() + timeout_ms;
    for (;;) {
        if (next_event(set, data))
            return NVML_SUCCESS;
        long long left = end - now_ms();
        if (left <= 0)
            return NVML_ERROR_TIMEOUT;
        sleep_ms(left < POLL_MS ? left : POLL_MS);
    }
}

NVML_API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms)
{
    return nvmlEventSetWait_v2(set, data, timeout_ms);
}
