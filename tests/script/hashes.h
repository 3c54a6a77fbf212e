/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_HASHES_H
#define WEIR_TESTS_HASHES_H

#include <stddef.h>
#include <stdint.h>

/* Keys that are hashes of a few fields and vanish at their time: the data of a store in a box. */

#define HASHES_FIELDS_MAX 8
#define HASHES_NEVER INT64_MAX

struct bytes {
    char *data; /* with a 0 after the last */
    size_t len;
};

struct field {
    char name[16];
    struct bytes value;
};

struct hash {
    struct hash *next;
    struct bytes key;
    struct field fields[HASHES_FIELDS_MAX];
    size_t field_count;
    int64_t expires_us;
};

struct hashes {
    struct hash **slots;
    size_t slot_count, hash_count;
    int64_t now_us; /* keys whose time has come are dropped when they are looked up */
};

void hashes_init(struct hashes *hashes);
void hashes_deinit(struct hashes *hashes);

/* NULL when it is not there. */
struct hash *hashes_find(struct hashes *hashes, const void *key, size_t len);
struct hash *hashes_find_or_make(struct hashes *hashes, const void *key, size_t len);

void hashes_delete(struct hashes *hashes, const void *key, size_t len);
void hashes_flush(struct hashes *hashes);

/* Adds a hash whose key is not there yet; takes it over. */
void hashes_insert(struct hashes *hashes, struct hash *hash);

struct field *hash_field(struct hash *hash, const char *name);
void hash_set(struct hash *hash, const char *name, const void *value, size_t len);
void hash_unset(struct hash *hash, const char *name);
struct hash *hash_clone(const struct hash *from);
void hash_free(struct hash *hash);

struct bytes bytes_of(const void *data, size_t len);

/* Aborts on NULL: a test without memory has nothing to say. */
void *must(void *p);

#endif
