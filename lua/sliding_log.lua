-- SPDX-License-Identifier: MIT
--
-- The sliding window log: the time of every admission, until it is a period old.  Part of the
-- script that lua/lease.lua describes; src/core/algorithms/sliding_log.c is the same in C.
--
--   s.level  admissions in the log
--   s.stamp  when it was last looked at
--   s.extra  the log, the oldest entry first: time and count, packed (12 bytes)
--
-- An entry is a moment, not an admission: what is granted at once shares one, so nothing needs a
-- name of its own.  For capacities above EXACT_MOST moments are rounded up to the next of PARTS
-- parts of the period: tokens then come back by so much later, never earlier, and the log is never
-- longer than the larger of the two.  Where changes of the limit would still make it longer than
-- LOG_BOUND, admissions join the newest entry, which is moved to their time: late again.

local sub, concat = string.sub, table.concat
local ENTRY, ENTRY_BYTES = '<dI4', 12
local EXACT_MOST, PARTS, LOG_BOUND = 1024, 256, 2048
local LEARNING_STEPS = 16

local function sliding_log(s)
    local function load(text)
        s.extra = text
        return text and #text % ENTRY_BYTES == 0
    end

    local function read(at)
        local time, count = struct_unpack(ENTRY, s.extra, at)
        return time, count
    end

    -- The last entry's position; below 1 if there is none.
    local function last()
        return #s.extra - ENTRY_BYTES + 1
    end

    -- The moment that an admission at t counts for.
    local function moment()
        if s.capacity <= EXACT_MOST then
            return s.t
        end
        local grain = ceil(s.period / PARTS)
        return ceil(s.t / grain) * grain
    end

    -- The period that holds t, aligned as for the windows; for refunds.  Leases may go beyond it.
    local function enter()
        s.start, s.edge = s.t - s.t % s.period, INT53_MAX
    end

    local function append(time, count)
        local at = last()
        local newest = at >= 1 and read(at) or 0
        if at >= 1 and (newest >= time or #s.extra >= LOG_BOUND * ENTRY_BYTES) then
            local _, joined = read(at)
            s.extra = sub(s.extra, 1, at - 1)
            time, count = max(newest, time), joined + count
        end
        s.extra = s.extra .. struct_pack(ENTRY, time, count)
    end

    local function take(tokens)
        if tokens > 0 then
            append(moment(), tokens)
            s.level = s.level + tokens
        end
    end

    -- Without tokens: as if all along just as much had been used as the rate allows, in sixteen
    -- steps.
    local function create(tokens)
        enter()
        s.level, s.extra, s.stamp = 0, '', s.t
        if tokens then
            return take(s.capacity - tokens)
        end
        for i = 1, LEARNING_STEPS do
            local sum = floor(s.capacity * i / LEARNING_STEPS)
            if sum > s.level then
                append(s.t - s.period + ceil(s.period * i / LEARNING_STEPS), sum - s.level)
                s.level = sum
            end
        end
    end

    -- Entries that are ahead of the clock now count from now on.
    local function rewind()
        enter()
        local at, late, now = last(), 0, moment()
        while at >= 1 do
            local time, count = read(at)
            if time < now then
                break
            end
            late, at = late + count, at - ENTRY_BYTES
        end
        s.extra, s.stamp = sub(s.extra, 1, at + ENTRY_BYTES - 1), s.t
        if late > 0 then
            append(now, late)
        end
    end

    local function refill()
        enter()
        local at, bytes = 1, #s.extra
        while at <= bytes do
            local time, count = read(at)
            if time + s.period > s.t then
                break
            end
            s.level, at = s.level - count, at + ENTRY_BYTES
        end
        if at > 1 then
            s.extra = sub(s.extra, at)
        end
        s.stamp = s.t
    end

    -- R11: what was used stays used, for as long as the new period says.
    local function adopt()
        return true
    end

    local function there()
        return s.capacity - s.level
    end

    local function exact(tokens)
        return tokens <= s.capacity - s.level and 0 or nil
    end

    -- The oldest entries that it can have come from are taken back, so that those who did use
    -- theirs count for as long as they must, or longer.  Not once some of them may be gone: what
    -- came after would be taken for them.
    local function give(tokens, since, ago)
        if not ago or since + s.period <= s.t then
            return 0
        end
        local left, kept, at, bytes = tokens, {}, 1, #s.extra
        while at <= bytes and left > 0 do
            local time, count = read(at)
            local back = time >= since and min(count, left) or 0
            left, s.level = left - back, s.level - back
            if count > back then
                kept[#kept + 1] = struct_pack(ENTRY, time, count - back)
            end
            at = at + ENTRY_BYTES
        end
        s.extra = concat(kept) .. sub(s.extra, at)
        return tokens
    end

    local function due(tokens)
        local short, at, bytes = tokens - there(), 1, #s.extra
        local time = s.t - s.period
        while short > 0 and at <= bytes do
            local oldest, count = read(at)
            time, short, at = oldest, short - count, at + ENTRY_BYTES
        end
        return time + s.period - s.t
    end

    local function fill()
        local at = last()
        return at >= 1 and read(at) + s.period - s.t or 0
    end

    s.span = s.period
    return {
        load = load, create = create, rewind = rewind, refill = refill, adopt = adopt,
        there = there, exact = exact, take = take, give = give, due = due, fill = fill,
    }
end
