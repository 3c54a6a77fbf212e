# SPDX-License-Identifier: MIT
# What the scripts share.  Sourced by them, with `root` set to the top of the tree.
# shellcheck shell=bash

# die MESSAGE...
die() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# is_installed PACKAGE
is_installed() {
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# missing_packages: those of packages.txt that are not installed, one a line; a question mark stays.
missing_packages() {
    local line
    while read -r line; do
        if [[ -n $line && $line != \#* ]] && ! is_installed "${line%\?}"; then
            echo "$line"
        fi
    done <"$root/scripts/packages.txt"
}

# install_packages PACKAGE...: as root by apt-get, saying so; else ends with the command to run.
install_packages() {
    local package chosen=()
    command -v apt-get >/dev/null || die "not found here: $*; without apt-get, install them by hand"
    if [[ $(id -u) != 0 ]]; then
        die "not installed: run  sudo apt-get install --no-install-recommends ${*%\?}"
    fi
    echo "installing by apt-get: ${*%\?}"
    apt-get update -qq
    for package in "$@"; do
        if [[ $package == *\? && -z $(apt-cache search --names-only "^${package%\?}\$") ]]; then
            echo "this distribution has no ${package%\?}: going on without"
        else
            chosen+=("${package%\?}")
        fi
    done
    if ((${#chosen[@]} > 0)); then
        # Quiet when all goes well: packages warn of much that does not matter in a bare tree.
        local said
        said=$(DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
            -o Dpkg::Use-Pty=0 "${chosen[@]}" 2>&1) || die "apt-get install failed:
$said"
    fi
}

# install_missing: everything of packages.txt.
install_missing() {
    local missing
    mapfile -t missing < <(missing_packages)
    if ((${#missing[@]} > 0)); then
        install_packages "${missing[@]}"
    fi
}

# The sum of all counts so far.
passed=0 failed=0 skipped=0

# add_counts FILE: adds the counts of its last line, "N passed, N failed, N skipped".
add_counts() {
    local line
    line=$(tail -n 1 "$1")
    [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]] ||
        die "no counts at the end of $1"
    passed=$((passed + BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[2]))
    skipped=$((skipped + BASH_REMATCH[3]))
}
