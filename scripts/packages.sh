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
    grep -F 'no adapter nothing; there are cuda, level_zero, mock, native_cpu, opencl' "$work/refused"
}

# manuals PREFIX: each tool has its man page and its completions.
manuals() {
    local tool page
    for tool in ur-conformance ur-env urinfo urreplay urtrace; do
        page=$(compgen -G "$1/share/man/man1/$tool.1*")
        gzip -dcf "$page" | grep -q "^\.TH $tool 1"
        bash -n "$1/share/bash-completion/completions/$tool"
        grep -q "^ *complete .* $tool$" "$1/share/bash-completion/completions/$tool"
        grep -q "^#compdef $tool" "$1"/share/zsh/*/"_$tool"
        grep -q "^complete -c $tool " "$1/share/fish/vendor_completions.d/$tool.fish"
    done
    say "5 tools have man pages and completions in $(basename "$1")"
}

# in_clean_root PACKAGE: the programs run where nothing is but the package, what it depends on, and a shell.
in_clean_root() {
    local clean=$work/clean folder package file
    local enter='mount --bind /dev/null "$0/dev/null" && mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
    if ! unshare --mount --pid --fork true 2>/dev/null; then
        say "programs in a clean root SKIPPED: this user may not make one"
        return
    fi
    mkdir -p "$clean"/{proc,dev,tmp}
    touch "$clean/dev/null"
    for folder in bin lib lib64; do
        mkdir -p "$clean/usr/$folder"
        ln -s "usr/$folder" "$clean/$folder"
    done
    for package in libc6 libgcc-s1 dash; do
        while read -r file; do
            # Lines about diversions are no paths.
            if [ -e "$file" ] && [ ! -d "$file" ] && [[ $file == */lib/* || $file == /lib64/* || $file == */bin/* ]]; then
                mkdir -p "$clean$(dirname "$file")"
                cp -a "$file" "$clean$file"
            fi
        done < <(dpkg-query --listfiles "$package")
    done
    ln -sf dash "$clean/usr/bin/sh"
    dpkg --extract "$1" "$clean"
    alone() {
        env -i PATH=/usr/bin:/usr/sbin unshare --mount --pid --fork "$(command -v bash)" -c "$enter" "$clean" "$@"
    }
    alone urinfo | grep -F "$device"
    alone ur-conformance --adapter native_cpu --filter adapter:: | tail -1 | grep -F ' 0 failed'
    alone ur-conformance --adapter native_cpu --filter adapter:: --expectations native_cpu >/dev/null
    alone urtrace --summary urinfo 2>&1 | grep -E '^\| urDeviceGet '
    # shellcheck disable=SC2016 # the inner shell's
    alone sh -c 'eval "$(ur-env --adapter native_cpu)" && urinfo' | grep -F "$device"
    say "the programs run in a root of $(find "$clean" -type f | wc -l) files"
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
say "the metadata of $(basename "$wheel")"
python3 -m venv "$work/checker"
"$work/checker/bin/pip" install --quiet --disable-pip-version-check 'packaging>=25' trove-classifiers
"$work/checker/bin/python" - "$wheel" <<'PYTHON'
import re, sys, zipfile
from packaging.metadata import Metadata
from packaging.utils import parse_wheel_filename
from trove_classifiers import classifiers

path = sys.argv[1]
name, version, _, _ = parse_wheel_filename(path.rsplit("/", 1)[-1])
files = zipfile.ZipFile(path)
text = files.read(f"unified_runtime-{version}.dist-info/METADATA")
found = Metadata.from_email(text, validate=True)
assert (found.name, found.version) == (name, version), found
unknown = set(found.classifiers) - classifiers
assert found.classifiers and not unknown, unknown
assert not any(one.startswith("License ::") for one in found.classifiers), "PEP 639: the expression alone"
for file in found.license_files:
    files.getinfo(f"unified_runtime-{version}.dist-info/licenses/{file}")
links = re.findall(r"\]\(([^)]*)\)", re.sub(r"```.*?```", "", found.description, flags=re.S))
dead = [link for link in links if not link.startswith(("https://", "http://", "#"))]
assert not dead, f"links that lead nowhere from PyPI: {dead}"
print(f"packages: {found.name} {found.version}, {found.license_expression.split(' AND ')[0]} and others,",
      f"{len(found.classifiers)} classifiers, {len(links)} links in the readme, none dead")
PYTHON

say "$(basename "$wheel") in a fresh virtual environment"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
"$work/venv/bin/pip" check
programs "$work/venv/bin"
prefix=$("$work/venv/bin/python" -c 'import unified_runtime; print(unified_runtime.prefix)')
"$root/scripts/installed.sh" "$prefix"
manuals "$work/venv"
licenses=$(echo "$work"/venv/lib/python3*/site-packages/unified_runtime-*.dist-info/licenses)
notices "$licenses" "$licenses/COPYRIGHT-library.html"
"$work/venv/bin/pip" uninstall --quiet --yes unified-runtime
if [ -e "$prefix" ] || compgen -G "$work/venv/bin/ur*" >/dev/null || [ -e "$work/venv/share/man/man1/urinfo.1" ]; then
    say "the wheel left something behind" >&2
    exit 1
fi

packages=()
for name in unified-runtime unified-runtime-dev unified-runtime-doc; do
    packages+=("$(one "$folder/${name}"_*.deb)")
done
say "Debian's packages in an empty root"
system=$work/system
mkdir "$system"
if command -v dpkg >/dev/null && command -v dpkg-query >/dev/null; then
    mkdir -p "$system/var/lib/dpkg/info" "$system/var/lib/dpkg/updates"
    # dpkg's database has the packages' dependencies and nothing else.
    dpkg-query --status libc6 libgcc-s1 2>/dev/null >"$system/var/lib/dpkg/status"
    # Headers without their libraries are refused.
    if dpkg --root="$system" --log="$work/dpkg.log" --force-not-root --install "${packages[1]}" >"$work/dpkg.err" 2>&1; then
        say "unified-runtime-dev can be installed alone" >&2
        exit 1
    fi
    grep -F 'unified-runtime-dev depends on unified-runtime (= ' "$work/dpkg.err"
    dpkg --root="$system" --log="$work/dpkg.log" --force-not-root --install "${packages[@]}" 2>"$work/dpkg.err" >/dev/null ||
        { cat "$work/dpkg.err" && exit 1; }
    dpkg --root="$system" --verify unified-runtime unified-runtime-dev unified-runtime-doc
    dpkg-query --admindir="$system/var/lib/dpkg" --show 'unified-runtime*'
    in_clean_root "${packages[0]}"
else
    say "there is no dpkg: unpacked by hand, dependencies unchecked"
    for package in "${packages[@]}"; do
        (cd "$work" && ar x "$package" && tar -xzf data.tar.gz -C "$system")
    done
fi
if command -v lintian >/dev/null; then
    # `initial-upload-closes-no-bugs` is about Debian's own archive.
    lintian --fail-on error --suppress-tags initial-upload-closes-no-bugs "${packages[@]}"
    say "lintian finds no error"
else
    say "lintian SKIPPED: it is not installed"
fi
ls "$system/usr/$lib/libur_loader.so.0" >/dev/null
manuals "$system/usr"
doc=$system/usr/share/doc/unified-runtime
[ -e "$doc/book/SUMMARY.md" ]
gzip -dc "$doc/COPYRIGHT-library.html.gz" >"$work/library.html"
notices "$doc" "$work/library.html"
# ldconfig would make these known to a system.
export LD_LIBRARY_PATH=$system/usr/$lib
programs "$system/usr/bin"
cp -r "$doc/examples" "$work/examples"
(
    cd "$work/examples"
    PKG_CONFIG_SYSROOT_DIR=$system PKG_CONFIG_LIBDIR=$system/usr/$lib/pkgconfig "$root/scripts/shown.py" \
        example async_alloc.c mock_test.c
)
unset LD_LIBRARY_PATH
if command -v dpkg >/dev/null; then
    dpkg --root="$system" --log="$work/dpkg.log" --force-not-root --purge \
        unified-runtime unified-runtime-dev unified-runtime-doc >/dev/null 2>&1
    if [ -n "$(find "$system" -path "*/usr/*" \( -type f -o -type l \))" ]; then
        say "the Debian packages left something behind" >&2
        exit 1
    fi
fi

say "the commands of README and of the book's first pages"
"$root/scripts/shown.py" page "$root"/README.md "$root"/docs/src/start/*.md

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
