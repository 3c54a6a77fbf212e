/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/*
 * SipHash-1-3: 64 bits of any bytes under a secret seed.  Who does not know the seed cannot make
 * keys that collide, and so cannot turn a hash table into a list.  One round a word and three at
 * the end, as the tables of Python, Ruby and Rust have it.
 * Source: Aumasson, Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012.
 */
struct weir__hash_state {
    uint64_t a, b, c, d;
};

static inline uint64_t weir__rotate_left(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void weir__hash_round(struct weir__hash_state *s)
{
    s->a += s->b;
    s->c += s->d;
    s->b = weir__rotate_left(s->b, 13) ^ s->a;
    s->d = weir__rotate_left(s->d, 16) ^ s->c;
    s->a = weir__rotate_left(s->a, 32);
    s->c += s->b;
    s->a += s->d;
    s->b = weir__rotate_left(s->b, 17) ^ s->c;
    s->d = weir__rotate_left(s->d, 21) ^ s->a;
    s->c = weir__rotate_left(s->c, 32);
}

/* Up to 8 bytes as a little-endian word, whatever the machine. */
static inline uint64_t weir__hash_word(const unsigned char *bytes, size_t count)
{
    uint64_t word = 0;
    for (size_t i = 0; i < count; i++) {
        word |= (uint64_t)bytes[i] << (8 * i);
    }
    return word;
}

static inline uint64_t weir__hash(const uint64_t seed[2], const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    /* "somepseudorandomlygeneratedbytes", as the paper has it. */
    struct weir__hash_state s = {
        .a = seed[0] ^ UINT64_C(0x736f6d6570736575),
        .b = seed[1] ^ UINT64_C(0x646f72616e646f6d),
        .c = seed[0] ^ UINT64_C(0x6c7967656e657261),
        .d = seed[1] ^ UINT64_C(0x7465646279746573),
    };

    for (size_t left = len; left >= 8; left -= 8, at += 8) {
        uint64_t word = weir__hash_word(at, 8);
        s.d ^= word;
        weir__hash_round(&s);
        s.a ^= word;
    }

    /* The last word carries the length, so that a key and its zero-padded twin differ. */
    uint64_t last = (uint64_t)len << 56 | weir__hash_word(at, len % 8);
    s.d ^= last;
    weir__hash_round(&s);
    s.a ^= last;
    s.c ^= 0xff;
    weir__hash_round(&s);
    weir__hash_round(&s);
    weir__hash_round(&s);
    return s.a ^ s.b ^ s.c ^ s.d;
}

#endif
