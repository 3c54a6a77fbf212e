/* SPDX-License-Identifier: MIT */

/*
 * The limits of a weir: defined once, changed while they run.
 *
 * Path of a token: before its path begins.  api/limit_options turns what the user wrote into a
 * rule; here it becomes a limit, or takes the place of the rule before.  Nothing here reaches a
 * store: a limit that is refused leaves everything as it was.
 */

#include "api/limits.h"

#include <string.h>

#include "api/buckets.h"
#include "api/complaint.h"
#include "api/inprocess.h"
#include "api/waiting.h"
#include "base/mem.h"

void weir__options_init(void *theirs, size_t their_size, void *ours, size_t our_size)
{
    memcpy(ours, &their_size, sizeof(their_size));
    memset(theirs, 0, their_size);
    memcpy(theirs, ours, their_size < our_size ? their_size : our_size);
}

int weir__options_copy(void *ours, size_t our_size, const void *theirs, struct weir_error *error)
{
    size_t their_size;
    memcpy(&their_size, theirs, sizeof(their_size));
    if (their_size < sizeof(their_size) || their_size > 65536) {
        return weir__complain(error, WEIR_EINVAL, "size: %zu: was the options struct initialised?",
                              their_size);
    }
    for (size_t i = our_size; i < their_size; i++) {
        if (((const unsigned char *)theirs)[i] != 0) {
            return weir__complain(error, WEIR_EINVAL,
                                  "size: %zu: an option at byte %zu is newer than this library",
                                  their_size, i);
        }
    }
    memcpy(ours, theirs, their_size < our_size ? their_size : our_size);
    memcpy(ours, &our_size, sizeof(our_size));
    return WEIR_OK;
}

int weir__name_check(const char *field, const char *name, struct weir_error *error)
{
    if (name == NULL || name[0] == '\0') {
        return weir__complain(error, WEIR_EINVAL, "%s: empty: 1 to %d bytes are needed", field,
                              WEIR__NAME_MAX);
    }
    size_t len = strlen(name);
    if (len > WEIR__NAME_MAX) {
        return weir__complain(error, WEIR_EINVAL, "%s: %zu bytes long: at most %d", field, len,
                              WEIR__NAME_MAX);
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c < 0x21 || c == 0x7f || c == '{' || c == '}' || c == ':') {
            return weir__complain(error, WEIR_EINVAL,
                                  "%s: byte %zu is 0x%02x: no braces, ':', blanks or control bytes",
                                  field, i + 1, c);
        }
    }
    return WEIR_OK;
}

static struct weir_limit *find_limit(const struct weir *weir, const char *name)
{
    struct weir_limit *limit = weir->limits;
    while (limit != NULL && strcmp(limit->name, name) != 0) {
        limit = limit->next;
    }
    return limit;
}

int weir_limit_define(struct weir *weir, struct weir_limit **out,
                      const struct weir_limit_options *options, struct weir_error *error)
{
    struct weir__limit core;
    struct weir_limit_options o;
    int code = weir__limit_read(&core, &o, options, weir->ask_timeout_us, error);
    if (code == WEIR_OK) {
        code = weir__name_check("name", o.name, error);
    }
    if (code != WEIR_OK) {
        return code;
    }
    struct weir_limit *limit = weir__mem_zero(sizeof(*limit));
    if (limit == NULL) {
        return weir__complain(error, WEIR_ENOMEM, "no memory for the limit '%s'", o.name);
    }
    limit->core = core;
    limit->weir = weir;
    limit->capacity = core.rule.capacity;
    limit->outage = core.outage;
    limit->capped = core.cap.tokens > 0;
    strcpy(limit->name, o.name); /* its length was checked */

    uv_mutex_lock(&weir->limits_lock);
    if (weir__load_acquire(&weir->closing)) {
        code = weir__complain(error, WEIR_ECLOSED, "the weir is closing");
    } else if (find_limit(weir, limit->name) != NULL) {
        code = weir__complain(error, WEIR_EEXIST, "name: '%s': a limit of this name exists",
                              limit->name);
    } else {
        limit->next = weir->limits;
        weir->limits = limit;
    }
    uv_mutex_unlock(&weir->limits_lock);
    if (code != WEIR_OK) {
        weir__mem_free(limit);
        return code;
    }
    *out = limit;
    return WEIR_OK;
}

/* In process nobody else brings the new limit to a bucket that is quiet; and who waits may be
 * served by it at once. */
static void adopt(void *arg, struct weir__entry *entry)
{
    struct weir_bucket *bucket = weir__container(entry, struct weir_bucket, entry);
    if (bucket->limit != arg) {
        return;
    }
    if (!bucket->limit->weir->remote) {
        weir__inprocess_adopt(bucket);
    }
    weir__waiting_nudge(bucket);
}

int weir_limit_update(struct weir_limit *limit, const struct weir_limit_options *options,
                      struct weir_error *error)
{
    struct weir *weir = limit->weir;
    struct weir__limit core;
    struct weir_limit_options o;
    int code = weir__limit_read(&core, &o, options, weir->ask_timeout_us, error);
    if (code != WEIR_OK) {
        return code;
    }
    if (weir__load_acquire(&weir->closing)) {
        return weir__complain(error, WEIR_ECLOSED, "the weir is closing");
    }
    uv_mutex_lock(&weir->driver.lock);
    for (int i = 0; i < WEIR__STRIPES; i++) {
        uv_mutex_lock(&weir->stripes[i]);
    }
    /* R11: the store takes the highest version; two changes within a second must not be equal. */
    if (o.version == WEIR_DEFAULT && core.rule.version <= limit->core.rule.version) {
        core.rule.version = limit->core.rule.version + 1;
    }
    limit->core = core;
    /* Relaxed: a caller may use either. */
    weir__store_relaxed(&limit->capacity, core.rule.capacity);
    weir__store_relaxed(&limit->outage, (uint32_t)core.outage);
    uint32_t capped = core.cap.tokens > 0;
    bool cap_changes = capped != weir__load_relaxed(&limit->capped);
    weir__store_relaxed(&limit->capped, capped);
    for (int i = WEIR__STRIPES; i-- > 0;) {
        uv_mutex_unlock(&weir->stripes[i]);
    }
    uv_mutex_unlock(&weir->driver.lock);
    weir__table_visit(weir->table, adopt, limit);
    if (cap_changes) {
        weir__buckets_cap(limit);
    }
    weir__driver_ring(&weir->driver);
    return WEIR_OK;
}
