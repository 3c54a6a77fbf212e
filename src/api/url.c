/* SPDX-License-Identifier: MIT */

/*
 * The address of a store.
 *
 * One pass from left to right; each piece is copied into its field of the endpoint, whose sizes are
 * the bounds.  Messages name the piece and its place, never its text: it could be a password.
 */

#include "api/url.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "api/complaint.h"

#define REDIS_PORT 6379
#define DB_MOST 65535 /* redis.conf allows more than anybody has */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Copies [from, to) into out, percent-decoded.  False: too long, or a bad or zero escape. */
static bool decode(char *out, size_t size, const char *from, const char *to)
{
    size_t n = 0;
    for (const char *p = from; p < to; p++) {
        char c = *p;
        if (c == '%') {
            int high = to - p > 2 ? hex_value(p[1]) : -1;
            int low = to - p > 2 ? hex_value(p[2]) : -1;
            if (high < 0 || low < 0 || high + low == 0) {
                return false;
            }
            c = (char)(high * 16 + low);
            p += 2;
        }
        if (n + 1 >= size) {
            return false;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return true;
}

static bool copy(char *out, size_t size, const char *from, const char *to)
{
    size_t n = (size_t)(to - from);
    if (n >= size || memchr(from, '%', n) != NULL) {
        return false;
    }
    memcpy(out, from, n);
    out[n] = '\0';
    return true;
}

/* A decimal number that ends at `to`. */
static bool number(uint32_t *out, const char *from, const char *to, uint32_t most)
{
    uint32_t value = 0;
    if (from == to || to - from > 5) {
        return false;
    }
    for (const char *p = from; p < to; p++) {
        if (!isdigit((unsigned char)*p)) {
            return false;
        }
        value = value * 10 + (uint32_t)(*p - '0');
    }
    *out = value;
    return value <= most;
}

static int wrong(struct weir_error *error, const char *url, const char *at, const char *expected)
{
    return weir__complain(error, WEIR_EINVAL, "url: at character %zu: expected %s",
                          (size_t)(at - url) + 1, expected);
}

static int read_login(struct weir__endpoint *endpoint, const char *url, const char *from,
                      const char *to, struct weir_error *error)
{
    const char *colon = memchr(from, ':', (size_t)(to - from));
    const char *user_end = colon == NULL ? to : colon;
    if (!decode(endpoint->user, sizeof(endpoint->user), from, user_end)) {
        return wrong(error, url, from, "a user name of at most 512 bytes, percent-encoded");
    }
    if (colon != NULL && !decode(endpoint->password, sizeof(endpoint->password), colon + 1, to)) {
        return wrong(error, url, colon + 1, "a password of at most 512 bytes, percent-encoded");
    }
    if (endpoint->user[0] != '\0' && endpoint->password[0] == '\0') {
        return wrong(error, url, user_end, "':' and a password after the user name");
    }
    return WEIR_OK;
}

static int read_network(struct weir__endpoint *endpoint, const char *url, const char *at,
                        struct weir_error *error)
{
    const char *end = at + strlen(at);
    const char *slash = strchr(at, '/');
    const char *host_end = slash == NULL ? end : slash;
    const char *host = at;
    const char *after;
    if (*at == '[') {
        host = at + 1;
        after = memchr(host, ']', (size_t)(host_end - host));
        if (after == NULL) {
            return wrong(error, url, at, "']' after an IPv6 address");
        }
    } else {
        after = memchr(at, ':', (size_t)(host_end - at));
        after = after == NULL ? host_end : after;
    }
    if (host == after || !copy(endpoint->host, sizeof(endpoint->host), host, after)) {
        return wrong(error, url, host, "a host name or address of 1 to 255 bytes");
    }
    after += *after == ']';

    uint32_t port = REDIS_PORT;
    if (after < host_end &&
        (*after != ':' || !number(&port, after + 1, host_end, 65535) || port == 0)) {
        return wrong(error, url, after, "':' and a port from 1 to 65535");
    }
    endpoint->port = (uint16_t)port;
    if (slash != NULL && slash[1] != '\0' && !number(&endpoint->db, slash + 1, end, DB_MOST)) {
        return wrong(error, url, slash + 1, "a database number from 0 to 65535");
    }
    return WEIR_OK;
}

static int read_path(struct weir__endpoint *endpoint, const char *url, const char *at,
                     struct weir_error *error)
{
    const char *end = at + strlen(at);
    const char *query = strchr(at, '?');
    const char *path_end = query == NULL ? end : query;
    if (*at != '/' || !copy(endpoint->path, sizeof(endpoint->path), at, path_end)) {
        return wrong(error, url, at, "an absolute path of at most 107 bytes");
    }
    if (query != NULL &&
        (strncmp(query, "?db=", 4) != 0 || !number(&endpoint->db, query + 4, end, DB_MOST))) {
        return wrong(error, url, query, "'?db=' and a number from 0 to 65535");
    }
    return WEIR_OK;
}

int weir__url_read(struct weir__endpoint *endpoint, const char *url, struct weir_error *error)
{
    static const char redis[] = "redis://";
    static const char local[] = "unix://";
    bool network = strncmp(url, redis, sizeof(redis) - 1) == 0;
    memset(endpoint, 0, sizeof(*endpoint));
    if (!network && strncmp(url, local, sizeof(local) - 1) != 0) {
        return wrong(error, url, url, "redis:// or unix://");
    }
    const char *at = url + (network ? sizeof(redis) - 1 : sizeof(local) - 1);
    const char *slash = strchr(at, '/');
    const char *at_sign = NULL;
    for (const char *p = at; *p != '\0' && p != slash; p++) {
        at_sign = *p == '@' ? p : at_sign;
    }
    if (at_sign != NULL) {
        int code = read_login(endpoint, url, at, at_sign, error);
        if (code != WEIR_OK) {
            return code;
        }
        at = at_sign + 1;
    }
    return network ? read_network(endpoint, url, at, error) : read_path(endpoint, url, at, error);
}
