# SPDX-License-Identifier: MIT
"""A short run of the reference model, as tests: no random schedule breaks the promise or the invariant of
its proof, every hand-made schedule breaks the promise exactly when its rule is left out, and the hostile
scheduler does find rules that are switched off.  check.py [SEEDS [FIRST]]; the seeds are printed."""

import sys
from dataclasses import replace

import adversary
import handmade
from model import FINAL

# Rules whose absence a hundred seeds are sure to show, with the faults that show it (mutants.py has all).
FOUND_SOON = [
    ("check_on_take", {"pause"}),
    ("ttl_windows", {"ttl"}),
    ("exact_ages", {"exact"}),
    ("refund_unsettled", {"refund"}),
    ("versioned", {"limit"}),
]
SECONDS_MAX = 60  # of one hunt; a slow machine runs fewer seeds


def cases(seeds, first):
    """(title, passed, what was seen)"""
    for name, kinds in adversary.SETS.items():
        ran, bad, worst, at = adversary.hunt(FINAL, kinds, seeds, first, want=0, seconds=SECONDS_MAX)
        broken = adversary.hunt.lemma
        seen = f"{ran} seeds from {first}: {bad} break the promise (worst +{worst}, seed {at}), "
        yield f"promise holds: {name}", bad == 0 and broken == 0, seen + f"{broken} the invariant"

    for rule, schedule in handmade.CASES:
        off = replace(FINAL, **{name: False for name in rule.split("+")})
        without, complete = schedule(off).promise.excess(), schedule(FINAL).promise.excess()
        seen = f"excess {without} without the rule, {complete} with it"
        yield f"rule is needed: {rule}", without > 0 and complete <= 0, seen

    for rule, kinds in FOUND_SOON:
        off = replace(FINAL, **{rule: False})
        ran, bad, _, _ = adversary.hunt(off, kinds, max(seeds, 100), first, seconds=SECONDS_MAX)
        yield f"absence is found: {rule}", bad > 0, f"{bad} of {ran} seeds from {first}"


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failed = False
    number = 0
    for number, (title, passed, seen) in enumerate(cases(seeds, first), 1):
        failed |= not passed
        print(f"{'ok' if passed else 'not ok'} {number} - {title}\n# {seen}", flush=True)
    print(f"1..{number}")
    return 1 if failed else 0


sys.exit(main())
