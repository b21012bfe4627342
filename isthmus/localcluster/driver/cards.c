/* See cards.h. No memory is allocated and nothing is kept between calls, so any thread may call this. */
#include "cards.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the file is. */
static void find_cards(const char *beside, char path[PATH_MAX])
{
    const char *named = getenv(CARDS_VARIABLE);
    if (named != NULL && *named != '\0') {
        snprintf(path, PATH_MAX, "%s", named);
        return;
    }
    if (beside != NULL && snprintf(path, PATH_MAX, "%s/cards", beside) < PATH_MAX && access(path, R_OK) == 0)
        return;
    snprintf(path, PATH_MAX, "%s", CARDS_IN_CONTAINER);
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

/* Numbers separated by commas. */
static int take_starts(const char *text, struct mig_profile *profile)
{
    while (*text != '\0') {
        char *end;
        if (profile->start_count == STARTS_MAX)
            return 0;
        profile->starts[profile->start_count++] = (unsigned)strtoul(text, &end, 10);
        if (end == text || (*end != ',' && *end != '\0'))
            return 0;
        text = end + (*end == ',');
    }
    return profile->start_count > 0;
}

static int take_profile(const char *text, struct card *card)
{
    char starts[64], rest;
    if (card->profile_count == PROFILES_MAX)
        return 0;
    struct mig_profile *new = &card->profiles[card->profile_count++];
    int taken = sscanf(text, "%15s %u %u %u %u %u %u %u %u %u %u %u %63s %c", new->name, &new->index, &new->id,
                       &new->compute_slices, &new->memory_slices, &new->most, &new->sms, &new->memory_mib,
                       &new->copy_engines, &new->decoders, &new->jpeg, &new->ofa, starts, &rest);
    return taken == 13 && take_starts(starts, new);
}

static int take_instance(const char *text, struct card *card)
{
    char profile[16], rest;
    if (card->instance_count == INSTANCES_MAX || !card->mig_enabled)
        return 0;
    struct mig_instance *new = &card->instances[card->instance_count++];
    if (sscanf(text, "%79s %15s %u %u %c", new->uuid, profile, &new->id, &new->start, &rest) != 4)
        return 0;
    for (new->profile = 0; new->profile < card->profile_count; new->profile++)
        if (strcmp(card->profiles[new->profile].name, profile) == 0)
            return 1;
    return 0;
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
    if (strcmp(key, "profile") == 0)
        return card->mig_capable && take_profile(value, card);
    if (strcmp(key, "mig") == 0)
        return card->mig_enabled = card->mig_capable && strcmp(value, "enabled") == 0;
    if (strcmp(key, "instance") == 0)
        return take_instance(value, card);
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

static int is_listed(const char *wanted, const char *uuid, const char *number)
{
    for (const char *item = wanted; *item != '\0';) {
        size_t length = strcspn(item, ",");
        if ((length == strlen(uuid) && strncmp(item, uuid, length) == 0) ||
            (length == strlen(number) && strncmp(item, number, length) == 0))
            return 1;
        item += length;
        item += *item == ',';
    }
    return 0;
}

/* Drop the instances that are not listed; whether one is left. */
static int keep_instances(const char *wanted, struct card *card, unsigned index)
{
    unsigned kept = 0;
    for (unsigned at = 0; at < card->instance_count; at++) {
        char number[32];
        snprintf(number, sizeof number, "%u:%u", index, at);
        if (is_listed(wanted, card->instances[at].uuid, number))
            card->instances[kept++] = card->instances[at];
    }
    card->instance_count = kept;
    return kept > 0;
}

static void keep_visible(struct card_list *list)
{
    const char *wanted = getenv("NVIDIA_VISIBLE_DEVICES");
    if (wanted == NULL || strcmp(wanted, "all") == 0)
        return;
    unsigned kept = 0;
    for (unsigned index = 0; index < list->count; index++) {
        struct card *card = &list->cards[index];
        char number[16];
        snprintf(number, sizeof number, "%u", index);
        if (is_listed(wanted, card->uuid, number) || keep_instances(wanted, card, index))
            list->cards[kept++] = *card;
    }
    list->count = kept;
}

enum cards_result cards_load(const char *beside, struct card_list *list)
{
    char path[PATH_MAX];
    memset(list, 0, sizeof *list);
    find_cards(beside, path);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return CARDS_ABSENT;
    enum cards_result result = parse(file, list);
    fclose(file);
    if (result == CARDS_OK)
        keep_visible(list);
    return result;
}

/* The file of a card's compute mode; 0 where the path is too long. */
static int mode_file(const char *beside, const char *uuid, char path[PATH_MAX])
{
    char cards[PATH_MAX];
    find_cards(beside, cards);
    const char *slash = strrchr(cards, '/');
    return slash != NULL &&
           snprintf(path, PATH_MAX, "%.*s/modes/%s", (int)(slash - cards), cards, uuid) < PATH_MAX;
}

unsigned cards_mode(const char *beside, const char *uuid)
{
    char path[PATH_MAX];
    unsigned mode = 0;
    FILE *file = mode_file(beside, uuid, path) ? fopen(path, "re") : NULL;
    if (file == NULL)
        return 0;
    if (fscanf(file, "%u", &mode) != 1)
        mode = 0;
    fclose(file);
    return mode;
}

int cards_set_mode(const char *beside, const char *uuid, unsigned mode)
{
    char path[PATH_MAX];
    FILE *file = mode_file(beside, uuid, path) ? fopen(path, "we") : NULL;
    if (file == NULL)
        return 0;
    int written = fprintf(file, "%u\n", mode) > 0;
    return fclose(file) == 0 && written;
}
