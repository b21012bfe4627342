/* See cards.h. No memory is allocated and nothing is kept between calls, so any thread may call this. */
#include "cards.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *open_cards(const char *beside)
{
    const char *named = getenv(CARDS_VARIABLE);
    if (named != NULL && *named != '\0')
        return fopen(named, "re");
    if (beside != NULL) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/cards", beside) < (int)sizeof path) {
            FILE *file = fopen(path, "re");
            if (file != NULL)
                return file;
        }
    }
    return fopen(CARDS_IN_CONTAINER, "re");
}

static int take_number(const char *text, unsigned long long *number)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 0);
    return errno == 0 && end != text && *end == '\0';
}

static int take_unsigned(const char *text, unsigned *number)
{
    unsigned long long wide;
    if (!take_number(text, &wide) || wide > UINT_MAX)
        return 0;
    *number = (unsigned)wide;
    return 1;
}

static int take_text(const char *text, char *into, size_t size)
{
    return *text != '\0' && snprintf(into, size, "%s", text) < (int)size;
}

static int take_yes_or_no(const char *text, int *answer)
{
    *answer = strcmp(text, "yes") == 0;
    return *answer || strcmp(text, "no") == 0;
}

static int take_capability(const char *text, struct card *card)
{
    char rest;
    return sscanf(text, "%d.%d%c", &card->compute_major, &card->compute_minor, &rest) == 2;
}

static int take_state(const char *text, struct card *card)
{
    card->xid = 0;
    if (strcmp(text, "ok") == 0)
        return 1;
    return strncmp(text, "xid ", 4) == 0 && take_unsigned(text + 4, &card->xid) && card->xid != 0;
}

static int take_card_line(const char *key, const char *value, struct card *card)
{
    unsigned number;
    if (strcmp(key, "name") == 0)
        return take_text(value, card->name, sizeof card->name);
    if (strcmp(key, "memory-mib") == 0)
        return take_number(value, &card->memory_mib);
    if (strcmp(key, "compute-capability") == 0)
        return take_capability(value, card);
    if (strcmp(key, "architecture") == 0)
        return take_unsigned(value, &card->architecture);
    if (strcmp(key, "brand") == 0 && take_unsigned(value, &number) && number <= INT_MAX) {
        card->brand = (int)number;
        return 1;
    }
    if (strcmp(key, "pci-device-id") == 0)
        return take_unsigned(value, &card->pci_device_id);
    if (strcmp(key, "pci-bus") == 0)
        return take_unsigned(value, &card->pci_bus) && card->pci_bus <= 0xff;
    if (strcmp(key, "minor") == 0)
        return take_unsigned(value, &card->minor);
    if (strcmp(key, "mig-capable") == 0)
        return take_yes_or_no(value, &card->mig_capable);
    if (strcmp(key, "state") == 0)
        return take_state(value, card);
    return 0;
}

static int take_line(const char *key, const char *value, struct card_list *list)
{
    unsigned number;
    if (strcmp(key, "driver-version") == 0)
        return take_text(value, list->driver_version, sizeof list->driver_version);
    if (strcmp(key, "cuda-version") == 0 && take_unsigned(value, &number) && number <= INT_MAX) {
        list->cuda_version = (int)number;
        return 1;
    }
    if (strcmp(key, "card") == 0) {
        if (list->count == CARDS_MAX)
            return 0;
        struct card *card = &list->cards[list->count++];
        return take_text(value, card->uuid, sizeof card->uuid);
    }
    return list->count > 0 && take_card_line(key, value, &list->cards[list->count - 1]);
}

/* Cut a line into key and value in place. Returns 1 for a pair, 0 for a line that means nothing, -1 for nonsense. */
static int split(char *line, char **key, char **value)
{
    line[strcspn(line, "\r\n")] = '\0';
    *key = line + strspn(line, " \t");
    if (**key == '\0' || **key == '#')
        return 0;
    char *colon = strchr(*key, ':');
    if (colon == NULL)
        return -1;
    *colon = '\0';
    *value = colon + 1 + strspn(colon + 1, " \t");
    return 1;
}

static enum cards_result parse(FILE *file, struct card_list *list)
{
    char line[512];
    while (fgets(line, sizeof line, file) != NULL) {
        char *key, *value;
        int kind = split(line, &key, &value);
        if (kind < 0 || (kind > 0 && !take_line(key, value, list)))
            return CARDS_INVALID;
    }
    return ferror(file) ? CARDS_INVALID : CARDS_OK;
}

static int is_listed(const char *wanted, const struct card *card, unsigned index)
{
    char number[16];
    snprintf(number, sizeof number, "%u", index);
    for (const char *item = wanted; *item != '\0';) {
        size_t length = strcspn(item, ",");
        if ((length == strlen(card->uuid) && strncmp(item, card->uuid, length) == 0) ||
            (length == strlen(number) && strncmp(item, number, length) == 0))
            return 1;
        item += length;
        item += *item == ',';
    }
    return 0;
}

static void keep_visible(struct card_list *list)
{
    const char *wanted = getenv("NVIDIA_VISIBLE_DEVICES");
    if (wanted == NULL || strcmp(wanted, "all") == 0)
        return;
    unsigned kept = 0;
    for (unsigned index = 0; index < list->count; index++)
        if (is_listed(wanted, &list->cards[index], index))
            list->cards[kept++] = list->cards[index];
    list->count = kept;
}

enum cards_result cards_load(const char *beside, struct card_list *list)
{
    memset(list, 0, sizeof *list);
    FILE *file = open_cards(beside);
    if (file == NULL)
        return CARDS_ABSENT;
    enum cards_result result = parse(file, list);
    fclose(file);
    if (result == CARDS_OK)
        keep_visible(list);
    return result;
}
