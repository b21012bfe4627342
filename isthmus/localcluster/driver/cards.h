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
 * Empty lines and lines that begin with # mean nothing; an unknown key is an error, so that a misspelt one is seen.
 */
#ifndef ISTHMUS_CARDS_H
#define ISTHMUS_CARDS_H

#define CARDS_MAX 16

/* Where a container finds the driver root. */
#define CARDS_IN_CONTAINER "/run/isthmus/driver/cards"

/* Names the file for tests; nothing else sets it. */
#define CARDS_VARIABLE "ISTHMUS_TEST_CARDS"

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
 * otherwise it is a comma-separated list of UUIDs or indices. Cards keep the order of the file.
 */
enum cards_result cards_load(const char *beside, struct card_list *list);

#endif
