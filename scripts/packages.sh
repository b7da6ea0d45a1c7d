#!/usr/bin/env bash
# Tests the packages of `cargo xtask package`, each in a clean place and as a user installs it.
#
#   scripts/packages.sh FOLDER [DRIVERS PYTHON...]
#
# FOLDER holds the packages. The wheel goes into a fresh virtual environment, without an index; the
# Debian package into an empty root, where dpkg checks its dependencies. Without dpkg it is unpacked by
# hand. Each PYTHON belongs to an environment with libsycl and dpctl. With the variables that `ur-env`
# prints, dpctl must list the CPU of scripts/drivers.sh DRIVERS through our OpenCL adapter. dpctl lists no
# native_cpu adapter at all.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(cd "$1" && pwd)
drivers=${2:-}
shift $(($# > 2 ? 2 : $#))
# Debian's own folder of libraries, such as lib/x86_64-linux-gnu.
triplet=$(cc -print-multiarch 2>/dev/null || true)
lib=lib/${triplet:-$(uname -m)-linux-gnu}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!UR_@}" "${!ONEAPI_@}" PYTHONPATH VIRTUAL_ENV
device='[native_cpu:cpu][native_cpu:0]'

say() {
    echo "packages: $*"
}

one() {
    if [ "$#" -ne 1 ] || [ ! -e "$1" ]; then
        echo "packages: $folder must hold one package of a kind, not $*" >&2
        exit 1
    fi
    echo "$1"
}

# programs BIN: each tool starts and finds the installation's loader and adapters.
programs() {
    ONEAPI_DEVICE_SELECTOR='native_cpu:*' "$1/urinfo" | grep -F "$device"
    [ "$("$1/ur-conformance" --list | wc -l)" -gt 1000 ]
    ONEAPI_DEVICE_SELECTOR='native_cpu:*' "$1/ur-conformance" --adapter native_cpu --filter loader >/dev/null
    "$1/urtrace" --summary "$1/urinfo" 2>&1 | grep -E '^\| urDeviceGet '
    # Its output is shell code that puts our loader beneath any program.
    (
        eval "$("$1/ur-env" --adapter native_cpu 2>/dev/null)"
        "$work/dlopen" | grep -x 'adapters: 1'
    )
    "$1/ur-env" --adapter mock "$work/dlopen" 2>/dev/null | grep -x 'adapters: 1'
    if "$1/ur-env" --adapter nothing 2>"$work/refused"; then
        exit 1
    fi
    grep -F 'no adapter nothing; there are cuda, mock, native_cpu, opencl' "$work/refused"
}

# This program links to nothing of ours, so the environment selects the loader.
cat >"$work/dlopen.c" <<'C'
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
int main(void) {
    void *loader = dlopen("libur_loader.so.0", RTLD_NOW);
    if (!loader) {
        puts(dlerror());
        return 1;
    }
    int (*init)(uint32_t, void *) = (int (*)(uint32_t, void *))dlsym(loader, "urLoaderInit");
    int (*get)(uint32_t, void **, uint32_t *) =
        (int (*)(uint32_t, void **, uint32_t *))dlsym(loader, "urAdapterGet");
    uint32_t count = 0;
    if (!init || !get || init(0, NULL) || get(0, NULL, &count)) {
        return 1;
    }
    printf("adapters: %u\n", count);
    return 0;
}
C
cc -std=gnu11 "$work/dlopen.c" -o "$work/dlopen" -ldl

# notices FOLDER LIBRARY: of each crate that is compiled in, and of the standard library.
notices() {
    local crate missing=0
    while read -r crate; do
        grep -qxF "Files: crates/$crate/*" "$1/copyright" || {
            say "$1/copyright does not name $crate" >&2
            missing=1
        }
    done < <(
        cd "$root"
        # All but this is installed. Paths stand behind packages of the workspace.
        cargo tree --workspace --exclude xtask --edges normal,no-proc-macro --prefix none --locked |
            sed -nE '/ \(\/|^$/!s/^([^ ]+) v([^ ]+).*/\1-\2/p' | sort -u
    )
    [ "$missing" -eq 0 ]
    grep -F 'Copyright notices for The Rust Standard Library' "$2" >/dev/null
    say "$(grep -c '^Files: crates/' "$1/copyright") crates are named in $(basename "$(dirname "$1")")/$(basename "$1")/copyright"
}

wheel=$(one "$folder"/*.whl)
say "$(basename "$wheel") in a fresh virtual environment"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
"$work/venv/bin/pip" check
programs "$work/venv/bin"
prefix=$("$work/venv/bin/python" -c 'import unified_runtime; print(unified_runtime.prefix)')
"$root/scripts/installed.sh" "$prefix"
licenses=$(echo "$work"/venv/lib/python3*/site-packages/unified_runtime-*.dist-info/licenses)
notices "$licenses" "$licenses/COPYRIGHT-library.html"
"$work/venv/bin/pip" uninstall --quiet --yes unified-runtime
if [ -e "$prefix" ] || compgen -G "$work/venv/bin/ur*" >/dev/null; then
    say "the wheel left something behind" >&2
    exit 1
fi

package=$(one "$folder"/*.deb)
say "$(basename "$package") in an empty root"
system=$work/system
mkdir "$system"
if command -v dpkg >/dev/null && command -v dpkg-query >/dev/null; then
    mkdir -p "$system/var/lib/dpkg/info" "$system/var/lib/dpkg/updates"
    # dpkg's database has the package's dependencies and nothing else.
    dpkg-query --status libc6 libgcc-s1 2>/dev/null >"$system/var/lib/dpkg/status"
    dpkg --root="$system" --log="$work/dpkg.log" --force-not-root --install "$package" 2>"$work/dpkg.err" >/dev/null ||
        { cat "$work/dpkg.err" && exit 1; }
    dpkg --root="$system" --verify unified-runtime
    dpkg-query --admindir="$system/var/lib/dpkg" --show unified-runtime
else
    say "there is no dpkg: unpacked by hand, dependencies unchecked"
    (cd "$work" && ar x "$package" && tar -xzf data.tar.gz -C "$system")
fi
ls "$system/usr/$lib/libur_loader.so.0" >/dev/null
doc=$system/usr/share/doc/unified-runtime
gzip -dc "$doc/COPYRIGHT-library.html.gz" >"$work/library.html"
notices "$doc" "$work/library.html"
# ldconfig would make these known to a system.
export LD_LIBRARY_PATH=$system/usr/$lib
programs "$system/usr/bin"
# shellcheck disable=SC2046 # the flags are words
cc -std=c11 "$root/examples/async_alloc.c" -o "$work/by-pkg-config" \
    $(PKG_CONFIG_SYSROOT_DIR=$system PKG_CONFIG_LIBDIR=$system/usr/$lib/pkgconfig \
        pkg-config --cflags --libs libur_loader)
ONEAPI_DEVICE_SELECTOR='native_cpu:*' "$work/by-pkg-config"
unset LD_LIBRARY_PATH
if command -v dpkg >/dev/null; then
    dpkg --root="$system" --log="$work/dpkg.log" --force-not-root --purge unified-runtime >/dev/null 2>&1
    if [ -n "$(find "$system/usr" -type f -o -type l)" ]; then
        say "the Debian package left something behind" >&2
        exit 1
    fi
fi

if [ "$#" -eq 0 ]; then
    say "dpctl SKIPPED: no environment with libsycl was named"
    exit 0
fi
# The environments belong to others, so nothing is installed into them.
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
for python in "$@"; do
    if ! "$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("dpctl"))'; then
        say "dpctl SKIPPED: $python has none"
        continue
    fi
    libsycl=$(dirname "$(dirname "$python")")/lib/libsycl.so.9
    say "under $libsycl"
    (
        eval "$("$work/venv/bin/ur-env" --libsycl "$libsycl")"
        "$root/scripts/drivers.sh" "$drivers" intel "$python" - "$prefix" <<'PYTHON'
import sys
import dpctl

names = [f"{device.filter_string} {device.name}" for device in dpctl.get_devices()]
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "/libur_" in line}
print("packages: dpctl lists", ", ".join(names), "on", *sorted(libraries))
assert any(name.startswith("opencl:cpu:0") for name in names), names
assert libraries and all(path.startswith(sys.argv[1]) for path in libraries), libraries
PYTHON
    )
done
