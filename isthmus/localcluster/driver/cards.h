/*
 * The cards of this node, as a text file describes them.
 *
 * The file is written by isthmus (driver.write_cards) and looks like this:
 *
 *     driver-version: 570.172.08
 *     cuda-version: 12080
 *
 *     card: GPU-6f1d2c9e-...        (begins a card; the rest belongs to it)
 *     name: Tesla T4
 *     memory-mib: 15360
 *     compute-capability: 7.5
 *     architecture: 6
 *     brand: 2
 *     pci-device-id: 0x1eb810de
 *     pci-bus: 1
 *     minor: 0
 *     mig-capable: no
 *     state: ok                     (or: xid 79)
 *
 * A card with MIG has its profiles too, and one that is in MIG mode its instances:
 *
 *     profile: 3g.20gb 2 9 3 4 2 42 19968 3 2 0 0 0,4    (name, NVML index, id, compute slices, memory slices, most
 *                                                         instances, SMs, MiB, copy engines, decoders, JPEG, OFA, starts)
 *     mig: enabled
 *     instance: MIG-5c2e... 3g.20gb 2 4                   (UUID, profile, GPU instance id, first memory slice)
 *
 * Each GPU instance has one compute instance, number 0, that fills it. Beside the file is the folder `modes`, where a
 * card's compute mode is kept in a file named by its UUID; no file means the default mode.
 *
 * Empty lines and lines that begin with # mean nothing; an unknown key is an error, so that a misspelt one is seen.
 */
#ifndef ISTHMUS_CARDS_H
#define ISTHMUS_CARDS_H

#define CARDS_MAX 16
#define PROFILES_MAX 8
#define INSTANCES_MAX 8 /* the hardware makes 7 at most */
#define STARTS_MAX 8

/* Where a container finds the driver root. */
#define CARDS_IN_CONTAINER "/run/isthmus/driver/cards"

/* Names the file for tests; nothing else sets it. */
#define CARDS_VARIABLE "ISTHMUS_TEST_CARDS"

struct mig_profile {
    char name[16];
    unsigned index; /* an NVML_GPU_INSTANCE_PROFILE_ number */
    unsigned id;    /* the number that nvidia-smi shows */
    unsigned compute_slices;
    unsigned memory_slices;
    unsigned most;
    unsigned sms;
    unsigned memory_mib;
    unsigned copy_engines;
    unsigned decoders;
    unsigned jpeg;
    unsigned ofa;
    unsigned starts[STARTS_MAX]; /* memory slices at which an instance may start */
    unsigned start_count;
};

struct mig_instance {
    char uuid[80];
    unsigned profile; /* position in the card's profiles */
    unsigned id;
    unsigned start;
};

struct card {
    char uuid[80];
    char name[96];
    unsigned long long memory_mib;
    int compute_major;
    int compute_minor;
    unsigned architecture; /* an NVML_DEVICE_ARCH_ number */
    int brand;             /* an nvmlBrandType_t */
    unsigned pci_device_id; /* device id in the upper, vendor id in the lower 16 bits */
    unsigned pci_bus;
    unsigned minor; /* the N of /dev/nvidiaN */
    int mig_capable;
    unsigned xid; /* 0: healthy; else the Xid of the error that took the card away */
    int mig_enabled;
    unsigned profile_count;
    struct mig_profile profiles[PROFILES_MAX];
    unsigned instance_count;
    struct mig_instance instances[INSTANCES_MAX];
};

struct card_list {
    char driver_version[80];
    int cuda_version; /* 1000 * major + 10 * minor */
    unsigned count;
    struct card cards[CARDS_MAX];
};

enum cards_result {
    CARDS_OK,
    CARDS_ABSENT,  /* no file: a machine without a driver */
    CARDS_INVALID, /* the file cannot be read as described above */
};

/*
 * Read the cards this process may see.
 *
 * `beside` is the folder to look in before the fixed one, or NULL. As the NVIDIA container runtime does with device
 * files, NVIDIA_VISIBLE_DEVICES narrows the list: unset or "all" is every card, "", "none" and "void" are no card, and
 * otherwise it is a comma-separated list of UUIDs or indices. Cards keep the order of the file. The UUID of a MIG instance
 * (or CARD:INSTANCE, two indices) shows its card with that instance alone.
 */
enum cards_result cards_load(const char *beside, struct card_list *list);

/* The compute mode of a card, an nvmlComputeMode_t; and setting it. Setting returns 0 where the folder cannot be written. */
unsigned cards_mode(const char *beside, const char *uuid);
int cards_set_mode(const char *beside, const char *uuid, unsigned mode);

#endif
