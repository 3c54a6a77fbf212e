# SPDX-License-Identifier: MIT
"""Each rule switched off: does the adversary find a broken promise, how soon, how large?
"lemma" counts the seeds in which leases were alive that the account did not hold."""
import sys
from dataclasses import replace
from model import FINAL
from adversary import hunt
CASES = [('spill', {'ticks'}), ('margin', {'drift'}), ('from_send', set()), ('check_on_take', {'pause'}), ('window_outlives', set()),
  ('monotone+window_outlives', {'back'}), ('ttl_windows', {'ttl'}), ('live_settle', set()), ('settle_once', set()),
  ('fence_link', {'failover'}), ('fresh_ids', {'loss'}), ('exact_ages', {'exact'}), ('refund_unsettled', {'refund'}),
  ('wait_margin', {'drift','exact','reserve'}), ('owing_waits', {'exact','reserve','refund'}), ('versioned', {'limit'}), ('keep_window', {'limit'})]
N = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
for flag, kinds in CASES:
    off = replace(FINAL, **{f: False for f in flag.split('+')})
    n, bad, worst, at = hunt(off, kinds, N, want=0, seconds=30)
    print(f'{flag:18} off, faults {sorted(kinds)}: {bad}/{n} seeds (lemma {hunt.lemma}), worst +{worst} tokens, first seed {at}', flush=True)
