/* SPDX-License-Identifier: MIT */

/*
 * Which thread counts where.
 *
 * `taken` has one bit a place.  A thread sets a free bit (acquire) and clears it when it ends
 * (release): the next owner of the place sees what the last one wrote, and goes on from there.
 */

#include "api/tally.h"

#include <pthread.h>

_Thread_local int weir__tally_place = -1;

static uint64_t taken = 1; /* place 0 is nobody's */
static pthread_key_t leaver;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int has_leaver;

static void leave(void *place)
{
    int mine = (int)(intptr_t)place;
    weir__tally_place = 0; /* what still counts in this ending thread counts atomically */
    (void)weir__and_acq_rel(&taken, ~(UINT64_C(1) << mine));
}

static void set_up(void) { has_leaver = pthread_key_create(&leaver, leave) == 0; }

int weir__tally_claim(void)
{
    (void)pthread_once(&once, set_up);
    weir__tally_place = 0;
    if (!has_leaver) {
        return 0;
    }
    uint64_t now = weir__load_relaxed(&taken);
    while (~now != 0) {
        int place = __builtin_ctzll(~now);
        if (!weir__cas_acq_rel(&taken, &now, now | UINT64_C(1) << place)) {
            continue;
        }
        if (pthread_setspecific(leaver, (void *)(intptr_t)place) != 0) {
            (void)weir__and_acq_rel(&taken, ~(UINT64_C(1) << place));
            return 0;
        }
        weir__tally_place = place;
        return place;
    }
    return 0;
}
