-- SPDX-License-Identifier: MIT
--
-- The global token bucket: one ask, decided in one step.  This is the store's half of the lease
-- protocol; docs/protocol.md has the rules (R0-R14) and the proof, and the numbers below are
-- theirs.  src/core/algorithms/token_bucket.c is the same arithmetic in C; tests hold the two
-- together, bit for bit, so a change here is a change there.
--
--   KEYS[1]  the bucket's key            ARGV[1]  the rule    ARGV[2]  the ask    (src/core/wire.h)
--
-- The key is one hash of at most four fields:
--
--   l  level, in units; negative while tokens are reserved ahead
--   t  stamp in microseconds: the level is as of then, and ticks are counted from it
--   r  the rule in force, the very bytes of the ARGV[1] that brought it
--   a  the account of open leases, packed; absent or empty while budget and leases are 0
--
-- Every number is an integer below 2^53, which a double holds exactly.  The floor and the ceiling
-- of a quotient x / a of two such numbers are exact too: a quotient that is no integer is at least
-- 1/a away from one, which is more than rounding can move it.  Three inequalities keep it so:
--
--   capacity * b + a < 2^53     level <= full     full - level < 2^53
--
-- R1: all reads come first, then arithmetic that cannot fail, then one HSET with every field that
-- changes, then PEXPIRE.  Out of memory or a wrong type stop the script before anything is
-- written.  A hash that this script did not write (fields missing or of the wrong length) counts
-- as lost data: the bucket starts anew, a term of the promise, where an error would block the key
-- until someone came.

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local call = redis.call
local struct_pack, struct_unpack = struct.pack, struct.unpack

local RULE, RULE_BYTES = '<ddddddddd', 72
local ASK, ASK_BYTES = '<dddddddddddddd', 112
local ACCOUNT, ACCOUNT_BYTES = '<ddddddddd', 72
local INT53_MAX = 9007199254740991
local NO_WINDOW = -1
local STAY = 10000000 -- 10 s, by choice: longer than any client pauses between two asks

local key, asked_rule = KEYS[1], ARGV[1]
if #KEYS ~= 1 or #ARGV < 2 or #asked_rule ~= RULE_BYTES or #ARGV[2] ~= ASK_BYTES then
    return redis.error_reply('WEIRARG needs one key, 72 bytes of rule and 112 bytes of ask')
end

local peek, want, least, held, exact_wanted, wait_wanted, refund, heard,
    window_1, spent_1, back_1, window_2, spent_2, back_2 = struct_unpack(ASK, ARGV[2])
local looking = peek ~= 0
least = max(1, least)

-- What is there.

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local stored = call('HMGET', key, 'l', 't', 'r', 'a')
local level, stamp = tonumber(stored[1]), tonumber(stored[2])
local stored_rule, account = stored[3], stored[4]
local account_bytes = account and #account or 0

local known = level and stamp and stored_rule and #stored_rule == RULE_BYTES
    and (account_bytes == 0 or account_bytes == ACCOUNT_BYTES)
local rule = known and stored_rule or asked_rule
local version, tick, a, b, capacity, budget, length, max_wait, initial = struct_unpack(RULE, rule)
local full = capacity * b

if not known then
    level, stamp = initial * b, now
end

local has_account = known and account_bytes == ACCOUNT_BYTES
local seen, cur, cur_end, cur_life, out_cur = stamp, NO_WINDOW, 0, 0, 0
local prev, out_prev, n_cur, n_prev = NO_WINDOW, 0, 0, 0
if has_account then
    seen, cur, cur_end, cur_life, out_cur, prev, out_prev, n_cur, n_prev =
        struct_unpack(ACCOUNT, account)
end

-- How time and units turn into each other (R0).

-- floor(x * y / z) for 0 <= x < z, where the product may pass 2^53: long multiplication by the bits
-- of y, highest first, keeping what is left after dividing by z.
local function mul_div(x, y, z)
    if x * y <= INT53_MAX then
        return floor(x * y / z)
    end
    local quotient, rest, bit = 0, 0, 1
    while bit <= y / 2 do
        bit = bit * 2
    end
    while bit >= 1 do
        quotient = quotient * 2
        if rest >= z - rest then
            quotient, rest = quotient + 1, rest - (z - rest)
        else
            rest = rest + rest
        end
        if y >= bit then
            y = y - bit
            if rest >= z - x then
                quotient, rest = quotient + 1, rest - (z - x)
            else
                rest = rest + x
            end
        end
        bit = bit / 2
    end
    return quotient
end

-- Microseconds, in whole ticks, in which `units` accrue; for ever is 285 years.
local function span(units)
    return min(INT53_MAX, ceil(units / a) * tick)
end

-- Microseconds from the stamp until the bucket is full: whole ticks, and of the last one only the
-- part in which a flowing time would have filled it.
local function fill_time()
    local missing = full - level
    local ticks = floor(missing / a)
    local rest = missing - ticks * a
    local part = rest > 0 and mul_div(rest, tick, a) + 1 or 0
    return min(INT53_MAX, ticks * tick + part)
end

-- R2: time never goes back.  A stamp too far ahead comes from a clock that has since been set
-- back: it is brought to now without a refill, and the window starts over with what is out.

local t = max(now, stamp, seen)
if t - now > max(span(full), cur_life) then
    stamp, cur_end, t = now, now + cur_life, now
end

-- R0: refill in whole ticks, until the bucket is full.  The stamp moves by what was counted, so no
-- part of a tick is lost; and what a flowing time would have spilled over the rim within a tick is
-- not brought again by the next one.

local function refill()
    local gap = t - stamp
    if gap >= fill_time() then
        level, stamp = full, t
    else
        local ticks = floor(gap / tick)
        level, stamp = level + ticks * a, stamp + ticks * tick
    end
end

-- From t until `units` more are there: by whole ticks, or because the bucket is full before.
local function due(units)
    return min(span(units), fill_time()) - (t - stamp)
end

refill()

-- R11: elapsed time has been refilled at the old rate; a higher version may now take over.

if rule ~= asked_rule then
    local version_2, tick_2, a_2, b_2, capacity_2, budget_2, length_2, max_wait_2, initial_2 =
        struct_unpack(RULE, asked_rule)
    local whole = floor(level / b)
    -- Reservations too deep for the new units keep the old rule until time has lifted the level.
    if version_2 > version and -whole <= floor((INT53_MAX - capacity_2 * b_2) / b_2) then
        if whole >= capacity_2 then
            level = capacity_2 * b_2
        elseif b_2 ~= b then
            level = whole * b_2 + mul_div(level - whole * b, b_2, b)
        end
        if tick_2 ~= tick or a_2 ~= a or b_2 ~= b then
            stamp = t
        end
        rule, version, tick, a, b = asked_rule, version_2, tick_2, a_2, b_2
        capacity, budget, length, max_wait = capacity_2, budget_2, length_2, max_wait_2
        initial = initial_2
        full = capacity * b
    end
end

-- R3: the windows of the account.

if has_account and t >= cur_end then
    if t >= cur_end + cur_life then -- every lease of cur is dead as well
        out_cur, n_cur = 0, 0
    end
    prev, out_prev, n_prev = cur, out_cur, n_cur
    cur, cur_end, cur_life = max(t, cur + 1), t + max(cur_life, length), length
    out_cur, n_cur = 0, 0
elseif budget > 0 and not has_account then
    has_account, cur, cur_end, cur_life = true, t, t + length, length
end

-- The ask.  A look grants nothing and moves nothing.

local lease, exact, wait, refunded = 0, 0, 0, 0

if not looking then
    -- R5: rows of live windows only; never more comes back than is out.
    local row, spent, back, returned = window_1, spent_1, back_1, 0
    for _ = 1, 2 do
        if row ~= NO_WINDOW then
            if row == cur then
                back = min(back, out_cur)
                out_cur = max(0, out_cur - back - spent)
                returned = returned + back
            elseif row == prev then
                back = min(back, out_prev)
                out_prev = max(0, out_prev - back - spent)
                returned = returned + back
            end
        end
        row, spent, back = window_2, spent_2, back_2
    end

    -- R10: admissions that were settled and not used after all.  R12: while the level is reserved
    -- ahead only time lifts it, and what comes back is lost.
    if level >= 0 then
        refunded = refund
        local units = min(returned + refunded, capacity) * b
        level = units < full - level and level + units or full
    end
end

if t > stamp then -- what came back, or a lower capacity, may have filled it within a tick
    refill()
end

if not looking then
    -- R9, R12: the waiters' part, all or nothing and outside the budget; now, or reserved ahead.
    if exact_wanted > 0 and exact_wanted <= capacity then
        local short = exact_wanted * b - level
        if short <= 0 then
            exact = exact_wanted
        elseif short <= INT53_MAX - full then
            local later = due(short)
            if later <= min(wait_wanted, max_wait) then
                exact, wait = exact_wanted, later
            end
        end
        level = level - exact * b
    end

    -- R3, R14: the lease, inside the budget, and at most half of what is free of it.
    local room = budget - out_cur - out_prev
    room = min(room, max(floor((room - held) / 2), least))
    lease = min(want, floor(level / b), room)
    if lease < least then
        lease = 0
    end
    level, out_cur = level - lease * b, out_cur + lease

    -- R13: who is here; a hint.
    if heard ~= cur then
        n_cur = n_cur + 1
    end
end

if budget == 0 and out_cur + out_prev == 0 then
    has_account, cur, cur_end, cur_life, n_cur, n_prev = false, NO_WINDOW, 0, 0, 0, 0
end

-- How long until what.  A stored time ahead of the clock has to pass first.

local ahead = t - now
local fill = fill_time() - (t - stamp)

local retry = 0
if exact_wanted > capacity then
    retry = -1
elseif lease == 0 and exact == 0 then
    local short = min(max(least, exact_wanted), capacity) * b - level
    if short > 0 then
        retry = min(INT53_MAX, due(short) + ahead)
    end
end

-- R1, R4: write.  The expiry outlives the filling and both windows; in whole milliseconds,
-- rounded up, with one more since the server counts from the millisecond it is in.  A key that
-- would start anew with less than it holds when full stays on for a while: who asks as rarely as it
-- fills must find it.

if not looking then
    local new_rule = rule ~= stored_rule
    if has_account then
        account = struct_pack(ACCOUNT,
            t, cur, cur_end, cur_life, out_cur, prev, out_prev, n_cur, n_prev)
    else
        account = ''
    end
    if has_account or account_bytes > 0 then
        if new_rule then
            call('HSET', key, 'l', level, 't', stamp, 'a', account, 'r', rule)
        else
            call('HSET', key, 'l', level, 't', stamp, 'a', account)
        end
    elseif new_rule then
        call('HSET', key, 'l', level, 't', stamp, 'r', rule)
    else
        call('HSET', key, 'l', level, 't', stamp)
    end
    local stay = initial < capacity and max(span(full), STAY) or 0
    local life = min(INT53_MAX, max(1, fill + stay, cur_end + cur_life - t) + ahead)
    call('PEXPIRE', key, ceil(life / 1000) + 1)
end

return {
    lease, exact, wait, cur, floor(cur_life * 3 / 4), -- R6
    max(0, floor(level / b)), retry, fill > 0 and min(INT53_MAX, fill + ahead) or 0,
    max(n_cur, n_prev), refunded, out_cur + out_prev, version,
}
