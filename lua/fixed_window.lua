-- SPDX-License-Identifier: MIT
--
-- The fixed window: so many in each period, counted from nothing when the next one begins.  Part of
-- the script that lua/lease.lua describes; src/core/algorithms/fixed_window.c is the same in C.
--
--   s.level  used in the period that began at s.stamp; above the capacity after that was lowered
--
-- Periods are half-open and aligned to the epoch, or are the months of the calendar, in UTC.

local MONTH = 1 -- s.variant

-- The month that holds t: from, to.  Counts years from March, so that the odd day comes last.
-- Source: E. G. Richards, "Mapping Time", 1998, chapter 25.
local DAY = 86400000000
local MONTH_MOST = 31 * DAY

local function month_begin(day)
    local z = day + 719468 -- days since 1 March of the year 0
    local era_day = z % 146097
    local year = floor((era_day - floor(era_day / 1460) + floor(era_day / 36524)
        - floor(era_day / 146096)) / 365)
    local year_day = era_day - (365 * year + floor(year / 4) - floor(year / 100))
    local nth = floor((5 * year_day + 2) / 153)
    return day - year_day + floor((153 * nth + 2) / 5)
end

local function month(t)
    local from = month_begin(floor(t / DAY))
    return from * DAY, month_begin(from + 31) * DAY
end

local function fixed_window(s)
    -- The period that holds t.
    local function enter(rule)
        local from, to
        if rule.variant == MONTH then
            from, to = month(s.t)
        else
            from = s.t - s.t % rule.period
            to = from + rule.period
        end
        s.start, s.edge = from, to - s.t
    end

    -- Without tokens: as if all along just as much had been used as the rate allows.
    local function create(tokens)
        enter(s)
        tokens = tokens or mul_div(s.edge, s.capacity, s.t + s.edge - s.start)
        s.level, s.stamp = s.capacity - tokens, s.start
    end

    local function rewind()
        enter(s)
        s.stamp = s.start
    end

    local function refill()
        enter(s)
        if s.start > s.stamp then
            s.level, s.stamp = 0, s.start
        end
    end

    -- R11: what was used stays used.
    local function adopt(rule)
        enter(rule)
        s.stamp = s.start
        return true
    end

    local function there()
        return s.capacity - s.level
    end

    local function exact(tokens)
        return tokens <= s.capacity - s.level and 0 or nil
    end

    local function take(tokens)
        s.level = s.level + tokens
    end

    -- Only into the period that it came from.
    local function give(tokens, _, ago)
        if ago ~= 0 then
            return 0
        end
        s.level = max(0, s.level - tokens)
        return tokens
    end

    local function due(tokens)
        return tokens > s.capacity - s.level and s.edge or 0
    end

    local function fill()
        return s.level > 0 and s.edge or 0
    end

    s.span = s.variant == MONTH and MONTH_MOST or s.period
    return {
        create = create, rewind = rewind, refill = refill, adopt = adopt, there = there,
        exact = exact, take = take, give = give, due = due, fill = fill,
    }
end
