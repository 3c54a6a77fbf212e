-- SPDX-License-Identifier: MIT
std = "lua51"
read_globals = { "redis", "struct", "KEYS", "ARGV" }
max_line_length = 100
