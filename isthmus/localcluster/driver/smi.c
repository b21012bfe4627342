/*
 * nvidia-smi for a machine without NVIDIA cards: what scripts ask most, answered from the NVML stand-in.
 *
 *     nvidia-smi                                    a table
 *     nvidia-smi -L                                 one line for each card and MIG device
 *     nvidia-smi -q                                 the attributes we know
 *     nvidia-smi [-i UUID|INDEX] -c MODE            set the compute mode: DEFAULT, PROHIBITED or EXCLUSIVE_PROCESS
 *     nvidia-smi --query-gpu=F,... --format=csv[,noheader][,nounits]
 *
 * The fields are those of FIELDS below. Every answer says that it is a stand-in: on standard output where people read
 * it, on standard error where programs do. It is linked statically, so that it runs in any container.
 */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTICE "isthmus stand-in for nvidia-smi: no NVIDIA card is in this machine, the cards come from a file"
#define MIB (1ull << 20)

static void die(const char *what, nvmlReturn_t result)
{
    fprintf(stderr, "%s\n%s: %s\n", NOTICE, what, nvmlErrorString(result));
    exit(result == NVML_ERROR_DRIVER_NOT_LOADED ? 9 : 1); /* 9: the exit code of nvidia-smi without a driver */
}

static void must(const char *what, nvmlReturn_t result)
{
    if (result != NVML_SUCCESS)
        die(what, result);
}

static unsigned device_count(void)
{
    unsigned count;
    must("cannot count the cards", nvmlDeviceGetCount_v2(&count));
    return count;
}

static nvmlDevice_t device_at(unsigned index)
{
    nvmlDevice_t device;
    must("cannot open a card", nvmlDeviceGetHandleByIndex_v2(index, &device));
    return device;
}

/* ---- the fields of --query-gpu ---- */

static void say_index(unsigned index, char *text, size_t size, int units)
{
    (void)units;
    snprintf(text, size, "%u", index);
}

static void say_name(unsigned index, char *text, size_t size, int units)
{
    (void)units;
    must("cannot read a name", nvmlDeviceGetName(device_at(index), text, (unsigned)size));
}

static void say_uuid(unsigned index, char *text, size_t size, int units)
{
    (void)units;
    must("cannot read a UUID", nvmlDeviceGetUUID(device_at(index), text, (unsigned)size));
}

static void say_driver(unsigned index, char *text, size_t size, int units)
{
    (void)index, (void)units;
    must("cannot read the driver's version", nvmlSystemGetDriverVersion(text, (unsigned)size));
}

static void say_count(unsigned index, char *text, size_t size, int units)
{
    (void)index, (void)units;
    snprintf(text, size, "%u", device_count());
}

static nvmlMemory_t memory_of(unsigned index)
{
    nvmlMemory_t memory;
    must("cannot read the memory", nvmlDeviceGetMemoryInfo(device_at(index), &memory));
    return memory;
}

static void say_total(unsigned index, char *text, size_t size, int units)
{
    snprintf(text, size, "%llu%s", memory_of(index).total / MIB, units ? " MiB" : "");
}

static void say_used(unsigned index, char *text, size_t size, int units)
{
    snprintf(text, size, "%llu%s", memory_of(index).used / MIB, units ? " MiB" : "");
}

static void say_free(unsigned index, char *text, size_t size, int units)
{
    snprintf(text, size, "%llu%s", memory_of(index).free / MIB, units ? " MiB" : "");
}

static void say_bus(unsigned index, char *text, size_t size, int units)
{
    nvmlPciInfo_t pci;
    (void)units;
    must("cannot read the PCI address", nvmlDeviceGetPciInfo_v3(device_at(index), &pci));
    snprintf(text, size, "%s", pci.busId);
}

static void say_capability(unsigned index, char *text, size_t size, int units)
{
    int major, minor;
    (void)units;
    must("cannot read the capability", nvmlDeviceGetCudaComputeCapability(device_at(index), &major, &minor));
    snprintf(text, size, "%d.%d", major, minor);
}

static const struct field {
    const char *name;
    const char *heading;
    void (*say)(unsigned index, char *text, size_t size, int units);
} FIELDS[] = {
    {"index", "index", say_index},
    {"name", "name", say_name},
    {"gpu_name", "name", say_name},
    {"uuid", "uuid", say_uuid},
    {"gpu_uuid", "uuid", say_uuid},
    {"memory.total", "memory.total [MiB]", say_total},
    {"memory.used", "memory.used [MiB]", say_used},
    {"memory.free", "memory.free [MiB]", say_free},
    {"pci.bus_id", "pci.bus_id", say_bus},
    {"compute_cap", "compute_cap", say_capability},
    {"driver_version", "driver_version", say_driver},
    {"count", "count", say_count},
};

static const struct field *field_named(const char *name)
{
    for (size_t index = 0; index < sizeof FIELDS / sizeof *FIELDS; index++)
        if (strcmp(FIELDS[index].name, name) == 0)
            return &FIELDS[index];
    fprintf(stderr, "Field \"%s\" is not a valid field to query.\n%s\n", name, NOTICE);
    exit(2); /* 2: an argument is invalid */
}

/* ---- the answers ---- */

static void answer_query(char *names, const char *format)
{
    const struct field *asked[32];
    unsigned fields = 0;
    for (char *name = strtok(names, ","); name != NULL && fields < 32; name = strtok(NULL, ","))
        asked[fields++] = field_named(name + strspn(name, " "));
    int units = strstr(format, "nounits") == NULL;
    if (strstr(format, "noheader") == NULL)
        for (unsigned at = 0; at < fields; at++)
            printf("%s%s", asked[at]->heading, at + 1 < fields ? ", " : "\n");
    for (unsigned index = 0; index < device_count(); index++)
        for (unsigned at = 0; at < fields; at++) {
            char text[96];
            asked[at]->say(index, text, sizeof text, units);
            printf("%s%s", text, at + 1 < fields ? ", " : "\n");
        }
    fprintf(stderr, "%s\n", NOTICE);
}

/* A line for each MIG device; its name is the card's and the profile's. */
static void list_instances(unsigned index, size_t card_name)
{
    unsigned count;
    must("cannot count the MIG devices", nvmlDeviceGetMaxMigDeviceCount(device_at(index), &count));
    for (unsigned at = 0; at < count; at++) {
        char name[128], uuid[96];
        nvmlDevice_t mig;
        if (nvmlDeviceGetMigDeviceHandleByIndex(device_at(index), at, &mig) != NVML_SUCCESS)
            continue;
        must("cannot read a name", nvmlDeviceGetName(mig, name, sizeof name));
        must("cannot read a UUID", nvmlDeviceGetUUID(mig, uuid, sizeof uuid));
        printf("  %-15s Device %2u: (UUID: %s)\n", name + card_name + 1, at, uuid);
    }
}

static void answer_list(void)
{
    for (unsigned index = 0; index < device_count(); index++) {
        char name[96], uuid[96];
        say_name(index, name, sizeof name, 0);
        say_uuid(index, uuid, sizeof uuid, 0);
        printf("GPU %u: %s (UUID: %s)\n", index, name, uuid);
        list_instances(index, strlen(name));
    }
    fprintf(stderr, "%s\n", NOTICE);
}

static void answer_attributes(void)
{
    int cuda;
    char driver[96];
    say_driver(0, driver, sizeof driver, 0);
    must("cannot read the CUDA version", nvmlSystemGetCudaDriverVersion(&cuda));
    printf("\n==============NVSMI LOG==============\n\n%-41s : %s\n", "Notice", NOTICE);
    printf("%-41s : %s\n%-41s : %d.%d\n", "Driver Version", driver, "CUDA Version", cuda / 1000, cuda % 1000 / 10);
    printf("\n%-41s : %u\n", "Attached GPUs", device_count());
    for (unsigned index = 0; index < device_count(); index++) {
        char name[96], uuid[96], bus[96];
        unsigned current, pending, minor;
        nvmlReturn_t mig = nvmlDeviceGetMigMode(device_at(index), &current, &pending);
        say_name(index, name, sizeof name, 0);
        say_uuid(index, uuid, sizeof uuid, 0);
        say_bus(index, bus, sizeof bus, 0);
        must("cannot read the minor number", nvmlDeviceGetMinorNumber(device_at(index), &minor));
        printf("GPU %s\n    %-37s : %s\n    %-37s : %s\n", bus, "Product Name", name, "GPU UUID", uuid);
        printf("    %-37s : %u\n    MIG Mode\n", "Minor Number", minor);
        printf("        %-33s : %s\n", "Current", mig != NVML_SUCCESS ? "N/A" : current ? "Enabled" : "Disabled");
        printf("    FB Memory Usage\n");
        printf("        %-33s : %llu MiB\n", "Total", memory_of(index).total / MIB);
        printf("        %-33s : %llu MiB\n\n", "Used", memory_of(index).used / MIB);
    }
}

static void answer_table(void)
{
    char driver[96];
    say_driver(0, driver, sizeof driver, 0);
    printf("%s\n\nDriver Version: %s\n", NOTICE, driver);
    printf("%-4s %-28s %-18s %12s\n", "GPU", "Name", "Bus-Id", "Memory");
    for (unsigned index = 0; index < device_count(); index++) {
        char name[96], bus[96], total[96];
        say_name(index, name, sizeof name, 0);
        say_bus(index, bus, sizeof bus, 0);
        say_total(index, total, sizeof total, 1);
        printf("%-4u %-28s %-18s %12s\n", index, name, bus, total);
    }
}

static const char *const MODES[] = {"DEFAULT", NULL, "PROHIBITED", "EXCLUSIVE_PROCESS"};

static int set_mode(const char *chosen, const char *mode)
{
    unsigned wanted = 0, done = 0;
    while (wanted < 4 && (MODES[wanted] == NULL || strcmp(MODES[wanted], mode) != 0))
        wanted++;
    for (unsigned index = 0; wanted < 4 && index < device_count(); index++) {
        char number[16], uuid[96], bus[96];
        snprintf(number, sizeof number, "%u", index);
        say_uuid(index, uuid, sizeof uuid, 0);
        if (chosen != NULL && strcmp(chosen, number) != 0 && strcmp(chosen, uuid) != 0)
            continue;
        must("cannot set the compute mode", nvmlDeviceSetComputeMode(device_at(index), wanted));
        say_bus(index, bus, sizeof bus, 0);
        printf("Set compute mode to %s for GPU %s.\n", mode, bus);
        done++;
    }
    fprintf(stderr, "%s\n", NOTICE);
    if (done > 0)
        printf("All done.\n");
    else
        fprintf(stderr, "%s\n", wanted < 4 ? "No devices were found" : "Unknown compute mode");
    return done > 0 ? 0 : 6; /* 6: a query for a device was not successful */
}

static int usage(void)
{
    fprintf(stderr, "usage: nvidia-smi [-L | -q | [-i GPU] -c MODE | --query-gpu=FIELD,... --format=csv[,noheader][,nounits]]\n%s\n", NOTICE);
    return 2;
}

int main(int argc, char **argv)
{
    char *query = NULL;
    const char *format = NULL, *chosen = NULL, *mode = NULL;
    int list = 0, attributes = 0;
    for (int at = 1; at < argc; at++) {
        if (strcmp(argv[at], "-L") == 0 || strcmp(argv[at], "--list-gpus") == 0)
            list = 1;
        else if (strcmp(argv[at], "-q") == 0 || strcmp(argv[at], "--query") == 0)
            attributes = 1;
        else if (strncmp(argv[at], "--query-gpu=", 12) == 0)
            query = argv[at] + 12;
        else if (strncmp(argv[at], "--format=csv", 12) == 0)
            format = argv[at] + 9;
        else if (strcmp(argv[at], "-i") == 0 && at + 1 < argc)
            chosen = argv[++at];
        else if (strcmp(argv[at], "-c") == 0 && at + 1 < argc)
            mode = argv[++at];
        else
            return usage();
    }
    if ((chosen != NULL && mode == NULL) || (query == NULL) != (format == NULL) || list + attributes + (query != NULL) + (mode != NULL) > 1)
        return usage();
    must("cannot talk to the driver", nvmlInit_v2());
    if (mode != NULL)
        return set_mode(chosen, mode);
    if (query != NULL)
        answer_query(query, format);
    else if (list)
        answer_list();
    else if (attributes)
        answer_attributes();
    else
        answer_table();
    nvmlShutdown();
    return 0;
}
