/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_ALGORITHMS_ALGORITHM_H
#define WEIR_CORE_ALGORITHMS_ALGORITHM_H

#include "core/global.h"

/*
 * What an algorithm knows: how many tokens are there, and when more will be.  The same operations,
 * under the same names, as in lua/; each is pure arithmetic on the run's copy of the key and cannot
 * fail.  Store time t never goes back (R2).
 */

#define WEIR__LEARNING_STEPS 16

/* One ask under way. */
struct weir__run {
    struct weir__global key; /* the state it works on */
    const struct weir__algorithm *op;
    int64_t t;           /* store time */
    int64_t start, edge; /* when the period in force began, and how long until it ends */

    /* The log's memory is the one thing that is no copy, and a look writes nothing to it: entries
     * later than `latest` are read as if they were of then, and a log that is made anew is made
     * here. */
    bool look;
    int64_t latest;
    struct weir__log_entry *spare; /* WEIR__LEARNING_STEPS of them */
};

#define WEIR__CREATE_LEARNING (-1)
#define WEIR__AGO_UNKNOWN (-1)

struct weir__algorithm {
    /* Microseconds in which an empty one is full. */
    int64_t (*span)(const struct weir__rule *rule);
    /* A new state with so many tokens; WEIR__CREATE_LEARNING: as if used at the rate all along. */
    void (*create)(struct weir__run *run, int64_t tokens);
    /* R2: the clock was set back to t, and the state is ahead of it. */
    void (*rewind)(struct weir__run *run);
    /* Brings the state to t.  Like create and rewind it sets start and edge. */
    void (*refill)(struct weir__run *run);
    /* R11: the state under another rule of the same algorithm.  False: not yet. */
    bool (*adopt)(struct weir__run *run, const struct weir__rule *rule);
    int64_t (*there)(const struct weir__run *run); /* whole tokens; may be below 0 */
    /* How long until `tokens` may be used if they are taken now; -1: not within `patience`. */
    int64_t (*exact)(const struct weir__run *run, int64_t tokens, int64_t patience);
    void (*take)(struct weir__run *run, int64_t tokens);
    /* Brings back what was granted in or after the window `since`, `ago` periods before this one
     * (WEIR__AGO_UNKNOWN).  Returns how many were accepted: all or 0. */
    int64_t (*give)(struct weir__run *run, int64_t tokens, int64_t since, int64_t ago);
    /* How long until an ask for `tokens` with this patience would be granted; <= 0: now. */
    int64_t (*due)(const struct weir__run *run, int64_t tokens, int64_t patience);
    int64_t (*fill)(const struct weir__run *run); /* how long until it is full */
    bool slots; /* what is leased is departure slots: a leaky bucket as a queue */
};

/* NULL: no such algorithm. */
const struct weir__algorithm *weir__algorithm_of(const struct weir__rule *rule);

extern const struct weir__algorithm weir__token_bucket;
extern const struct weir__algorithm weir__leaky_queue; /* as a meter it is the token bucket */
extern const struct weir__algorithm weir__fixed_window;
extern const struct weir__algorithm weir__sliding_log;
extern const struct weir__algorithm weir__sliding_counter;

/* What the leaky bucket as a queue shares with the token bucket. */
int64_t weir__token_bucket_span(const struct weir__rule *rule);
void weir__token_bucket_create(struct weir__run *run, int64_t tokens);
void weir__token_bucket_rewind(struct weir__run *run);
void weir__token_bucket_refill(struct weir__run *run);
bool weir__token_bucket_adopt(struct weir__run *run, const struct weir__rule *rule);
int64_t weir__token_bucket_there(const struct weir__run *run);
void weir__token_bucket_take(struct weir__run *run, int64_t tokens);
int64_t weir__token_bucket_due(const struct weir__run *run, int64_t tokens, int64_t patience);
int64_t weir__token_bucket_fill(const struct weir__run *run);

/* Entries of a sliding log, at most. */
#define WEIR__LOG_BOUND 2048

#endif
