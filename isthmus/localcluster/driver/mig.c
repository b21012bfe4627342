/*
 * The MIG part of the library: modes, profiles, instances and their attributes, as the cards file has them.
 *
 * Instances are made by whoever writes that file (driver.write_cards); the calls that create and destroy them are among
 * the unsupported ones. A GPU instance holds one compute instance, number 0, of its own size.
 */
#include "state.h"

#include <string.h>

NVML_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    CHECK_CARD(device, current);
    if (pending == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!device->card->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = (unsigned)device->card->mig_enabled; /* NVML_DEVICE_MIG_DISABLE is 0, ENABLE 1 */
    return NVML_SUCCESS;
}

/* The most that any profile allows; 0 on a card that is not in MIG mode. */
NVML_API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    CHECK_CARD(device, count);
    *count = 0;
    for (unsigned at = 0; device->card->mig_enabled && at < device->card->profile_count; at++)
        if (device->card->profiles[at].most > *count)
            *count = device->card->profiles[at].most;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig)
{
    CHECK(device, is_mig);
    *is_mig = device->instance != NULL;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig)
{
    CHECK_CARD(device, mig);
    if (!device->card->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    *mig = nvml_instance(device->card, index);
    return *mig != NULL ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

NVML_API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    CHECK_INSTANCE(mig, device);
    *device = nvml_whole(mig->card);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id)
{
    CHECK_INSTANCE(device, id);
    *id = device->instance->id;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id)
{
    CHECK_INSTANCE(device, id);
    *id = 0;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    CHECK_INSTANCE(device, attributes);
    const struct mig_profile *profile = nvml_profile(device);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = profile->sms,
        .sharedCopyEngineCount = profile->copy_engines,
        .sharedDecoderCount = profile->decoders,
        .sharedJpegCount = profile->jpeg,
        .sharedOfaCount = profile->ofa,
        .gpuInstanceSliceCount = profile->compute_slices,
        .computeInstanceSliceCount = profile->compute_slices,
        .memorySizeMB = profile->memory_mib,
    };
    return NVML_SUCCESS;
}

/* ---- profiles ---- */

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned profile,
                                                          nvmlGpuInstanceProfileInfo_t *info)
{
    CHECK_CARD(device, info);
    for (unsigned at = 0; at < device->card->profile_count; at++) {
        const struct mig_profile *known = &device->card->profiles[at];
        if (known->index != profile)
            continue;
        *info = (nvmlGpuInstanceProfileInfo_t){
            .id = known->id,
            .sliceCount = known->compute_slices,
            .instanceCount = known->most,
            .multiprocessorCount = known->sms,
            .copyEngineCount = known->copy_engines,
            .decoderCount = known->decoders,
            .jpegCount = known->jpeg,
            .ofaCount = known->ofa,
            .memorySizeMB = known->memory_mib,
        };
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

/* With no array it only counts, as NVML does. */
NVML_API nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned profile_id,
                                                                    nvmlPlacement_t *placements, unsigned *count)
{
    CHECK_CARD(device, count);
    for (unsigned at = 0; at < device->card->profile_count; at++) {
        const struct mig_profile *known = &device->card->profiles[at];
        if (known->id != profile_id)
            continue;
        for (unsigned start = 0; placements != NULL && start < known->start_count; start++)
            placements[start] = (nvmlPlacement_t){known->starts[start], known->memory_slices};
        *count = known->start_count;
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

/* ---- instances ---- */

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned profile_id, nvmlGpuInstance_t *instances,
                                                unsigned *count)
{
    CHECK_CARD(device, count);
    *count = 0;
    struct device *part;
    for (unsigned at = 0; (part = nvml_instance(device->card, at)) != NULL; at++)
        if (nvml_profile(part)->id == profile_id)
            instances[(*count)++] = part;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance)
{
    CHECK_CARD(device, instance);
    struct device *part;
    for (unsigned at = 0; (part = nvml_instance(device->card, at)) != NULL; at++)
        if (part->instance->id == id) {
            *instance = part;
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    CHECK_INSTANCE(instance, info);
    const struct mig_profile *profile = nvml_profile(instance);
    *info = (nvmlGpuInstanceInfo_t){
        nvml_whole(instance->card), instance->instance->id, profile->id, {instance->instance->start, profile->memory_slices}};
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned id,
                                                            nvmlComputeInstance_t *compute)
{
    CHECK_INSTANCE(instance, compute);
    *compute = instance;
    return id == 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* NVML numbers compute instance profiles like its GPU instance profiles without media engines: by their slices. */
static int compute_profile(unsigned slices)
{
    static const int BY_SLICES[] = {-1, 0, 1, 2, 3, -1, 6, 4, 5};
    return slices < sizeof BY_SLICES / sizeof *BY_SLICES ? BY_SLICES[slices] : -1;
}

/* Only the profile that fills the instance: no smaller compute instances are made here. */
NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned profile,
                                                                   unsigned engine_profile,
                                                                   nvmlComputeInstanceProfileInfo_t *info)
{
    CHECK_INSTANCE(instance, info);
    const struct mig_profile *whole = nvml_profile(instance);
    if (engine_profile != 0 || (int)profile != compute_profile(whole->compute_slices))
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (nvmlComputeInstanceProfileInfo_t){
        .id = profile,
        .sliceCount = whole->compute_slices,
        .instanceCount = 1,
        .multiprocessorCount = whole->sms,
        .sharedCopyEngineCount = whole->copy_engines,
        .sharedDecoderCount = whole->decoders,
        .sharedJpegCount = whole->jpeg,
        .sharedOfaCount = whole->ofa,
    };
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info)
{
    CHECK_INSTANCE(compute, info);
    unsigned slices = nvml_profile(compute)->compute_slices;
    *info = (nvmlComputeInstanceInfo_t){
        nvml_whole(compute->card), compute, 0, (unsigned)compute_profile(slices), {0, slices}};
    return NVML_SUCCESS;
}
