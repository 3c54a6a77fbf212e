/* SPDX-License-Identifier: MIT */
/* Hashes in a chained table that doubles.  A hash has few fields: they are an array, searched from
 * end to end. */
#include "hashes.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS_FIRST 1024 /* a power of two */

void *must(void *p)
{
    if (p == NULL) {
        abort();
    }
    return p;
}

struct bytes bytes_of(const void *data, size_t len)
{
    struct bytes out = {must(malloc(len + 1)), len};
    if (len > 0) {
        memcpy(out.data, data, len);
    }
    out.data[len] = 0;
    return out;
}

static size_t slot_of(const struct hashes *hashes, const void *key, size_t len)
{
    const unsigned char *at = key;
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < len; i++) {
        h = (h ^ at[i]) * UINT64_C(1099511628211);
    }
    return (size_t)(h ^ h >> 32) & (hashes->slot_count - 1);
}

void hash_free(struct hash *hash)
{
    for (size_t i = 0; i < hash->field_count; i++) {
        free(hash->fields[i].value.data);
    }
    free(hash->key.data);
    free(hash);
}

struct hash *hash_clone(const struct hash *from)
{
    struct hash *to = must(malloc(sizeof *to));
    *to = *from;
    to->next = NULL;
    to->key = bytes_of(from->key.data, from->key.len);
    for (size_t i = 0; i < from->field_count; i++) {
        to->fields[i].value = bytes_of(from->fields[i].value.data, from->fields[i].value.len);
    }
    return to;
}

/* The link that points at the key, or at NULL where it would be added. */
static struct hash **find(struct hashes *hashes, const void *key, size_t len)
{
    struct hash **link = &hashes->slots[slot_of(hashes, key, len)];
    while (*link != NULL) {
        struct hash *hash = *link;
        if (hash->key.len == len && memcmp(hash->key.data, key, len) == 0) {
            if (hashes->now_us < hash->expires_us) {
                return link;
            }
            *link = hash->next;
            hash_free(hash);
            hashes->hash_count--;
        } else {
            link = &hash->next;
        }
    }
    return link;
}

static void grow(struct hashes *hashes)
{
    struct hash **old = hashes->slots;
    size_t old_count = hashes->slot_count;
    hashes->slot_count *= 2;
    hashes->slots = must(calloc(hashes->slot_count, sizeof(struct hash *)));
    for (size_t i = 0; i < old_count; i++) {
        for (struct hash *hash = old[i], *next; hash != NULL; hash = next) {
            next = hash->next;
            struct hash **slot = &hashes->slots[slot_of(hashes, hash->key.data, hash->key.len)];
            hash->next = *slot;
            *slot = hash;
        }
    }
    free(old);
}

void hashes_insert(struct hashes *hashes, struct hash *hash)
{
    if (hashes->hash_count >= hashes->slot_count) {
        grow(hashes);
    }
    *find(hashes, hash->key.data, hash->key.len) = hash;
    hashes->hash_count++;
}

struct hash *hashes_find(struct hashes *hashes, const void *key, size_t len)
{
    return *find(hashes, key, len);
}

struct hash *hashes_find_or_make(struct hashes *hashes, const void *key, size_t len)
{
    struct hash *hash = *find(hashes, key, len);
    if (hash == NULL) {
        hash = must(calloc(1, sizeof *hash));
        hash->key = bytes_of(key, len);
        hash->expires_us = HASHES_NEVER;
        hashes_insert(hashes, hash);
    }
    return hash;
}

struct field *hash_field(struct hash *hash, const char *name)
{
    for (size_t i = 0; i < hash->field_count; i++) {
        if (strcmp(hash->fields[i].name, name) == 0) {
            return &hash->fields[i];
        }
    }
    return NULL;
}

void hash_set(struct hash *hash, const char *name, const void *value, size_t len)
{
    struct field *field = hash_field(hash, name);
    if (field == NULL) {
        if (hash->field_count == HASHES_FIELDS_MAX || strlen(name) >= sizeof field->name) {
            abort();
        }
        field = &hash->fields[hash->field_count++];
        strcpy(field->name, name);
        field->value = (struct bytes){NULL, 0};
    }
    if (field->value.data == NULL || field->value.len != len) {
        free(field->value.data);
        field->value = bytes_of(value, len);
    } else {
        memcpy(field->value.data, value, len);
    }
}

void hash_unset(struct hash *hash, const char *name)
{
    struct field *field = hash_field(hash, name);
    if (field != NULL) {
        free(field->value.data);
        *field = hash->fields[--hash->field_count];
    }
}

void hashes_init(struct hashes *hashes)
{
    *hashes = (struct hashes){.slot_count = SLOTS_FIRST};
    hashes->slots = must(calloc(hashes->slot_count, sizeof(struct hash *)));
}

void hashes_deinit(struct hashes *hashes)
{
    hashes_flush(hashes);
    free(hashes->slots);
    *hashes = (struct hashes){.slots = NULL};
}

void hashes_delete(struct hashes *hashes, const void *key, size_t len)
{
    struct hash **link = find(hashes, key, len);
    struct hash *hash = *link;
    if (hash != NULL) {
        *link = hash->next;
        hash_free(hash);
        hashes->hash_count--;
    }
}

void hashes_flush(struct hashes *hashes)
{
    for (size_t i = 0; i < hashes->slot_count; i++) {
        for (struct hash *hash = hashes->slots[i], *next; hash != NULL; hash = next) {
            next = hash->next;
            hash_free(hash);
        }
        hashes->slots[i] = NULL;
    }
    hashes->hash_count = 0;
}
