#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What is installed is enough for a program of someone else: built through pkg-config against the shared
# and the static library, it runs; and weir works as a subproject of another meson project.
# test_install.sh SOURCE_ROOT BUILD_ROOT VERSION MESON...
set -euo pipefail

source_root=$1 build_root=$2 version=$3
shift 3
meson=("$@")
here=$source_root/tests/abi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

number=0 failed=0
echo 1..4

# report TITLE COMMAND...: runs the command; its output is shown when it fails.
report() {
    local title=$1 status=0
    shift
    number=$((number + 1))
    # Not as a condition: there, bash would go on after a command inside that failed.
    set +e
    (
        set -e
        "$@"
    ) >"$work/log" 2>&1
    status=$?
    set -e
    if ((status == 0)); then
        echo "ok $number - $title"
    else
        echo "not ok $number - $title"
        sed 's/^/# /' "$work/log"
        failed=1
    fi
}

# Installed under a folder of its own; the .pc file is told where it really is.
install_tree() {
    local prefix
    DESTDIR=$work/root "${meson[@]}" install -C "$build_root" --no-rebuild
    mkdir "$work/pkgconfig"
    find "$work/root" -name weir.pc -exec mv {} "$work/pkgconfig" \;
    prefix=$(sed -n 's/^prefix=//p' "$work/pkgconfig/weir.pc")
    sed -i "s|^prefix=.*|prefix=$work/root$prefix|" "$work/pkgconfig/weir.pc"
    test "$(pkg-config --modversion weir)" = "$version"
    test -f "$(pkg-config --variable=includedir weir)/weir/weir.h"
}
export PKG_CONFIG_PATH=$work/pkgconfig

build_and_run_shared() {
    local libdir
    libdir=$(pkg-config --variable=libdir weir)
    # shellcheck disable=SC2046 # flags are words
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror "-DEXPECTED_VERSION=\"$version\"" "$here/consumer.c" \
        -o "$work/shared" $(pkg-config --cflags --libs weir)
    LD_LIBRARY_PATH=$libdir ldd "$work/shared" | grep -F "$libdir/libweir.so.0"
    LD_LIBRARY_PATH=$libdir "$work/shared"
}

# Only weir itself is static: the flags for its own dependencies come from Requires.private.
build_and_run_static() {
    local libdir flags
    libdir=$(pkg-config --variable=libdir weir)
    flags=$(pkg-config --static --cflags --libs weir)
    # shellcheck disable=SC2086 # flags are words
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror "-DEXPECTED_VERSION=\"$version\"" "$here/consumer.c" \
        -o "$work/static" ${flags//-lweir/$libdir/libweir.a}
    if ldd "$work/static" | grep libweir; then
        return 1
    fi
    "$work/static"
}

build_and_run_subproject() {
    cp -r "$here/subproject" "$work/host"
    cp "$here/consumer.c" "$work/host"
    mkdir "$work/host/subprojects"
    ln -s "$source_root" "$work/host/subprojects/weir"
    "${meson[@]}" setup --force-fallback-for=weir "$work/host/build" "$work/host"
    "${meson[@]}" test -C "$work/host/build" --print-errorlogs
}

report "weir installs, with a header and a pkg-config file" install_tree
report "a program links to the shared library" build_and_run_shared
report "a program links to the static library" build_and_run_static
report "a project has weir as a subproject" build_and_run_subproject
exit $failed
