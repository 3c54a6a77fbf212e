-- SPDX-License-Identifier: MIT
--
-- The beginning of the script that lua/lease.lua describes: what all of its files use.

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local call = redis.call
local struct_pack, struct_unpack = struct.pack, struct.unpack

local RULE, RULE_BYTES = '<ddddI4I4I4I4I4I4BBB', 59
local ASK, ASK_BYTES = '<ddddddddddddddd', 120
local ACCOUNT, ACCOUNT_BYTES = '<ddddI4I4I4I4I4B', 53
local INT53_MAX = 9007199254740991
local NO_WINDOW = -1
local LOOK, RESET = 1, 2
local STAY = 10000000 -- 10 s, by choice: longer than any client pauses between two asks
local LIFE_LEAST = 1000 -- a millisecond: a lease that dies earlier is of no use to anyone
local EDGE_MARGIN = 2000 -- between a lease's death and the period's: a look of the loop, twice

-- floor(x * y / z) and the remainder, for 0 <= x < z, where the product may pass 2^53: long
-- multiplication by the bits of y, highest first, keeping what is left after dividing by z.
local function mul_div(x, y, z)
    if x * y <= INT53_MAX then
        local quotient = floor(x * y / z)
        return quotient, x * y - quotient * z
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
    return quotient, rest
end
