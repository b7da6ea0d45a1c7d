#!/usr/bin/env bash
# Runs the native CPU adapter, the loader and the conformance suites under a checker.
#
#   scripts/sanitize.sh address [ARGUMENTS...]       address and leak sanitizer
#   scripts/sanitize.sh thread [ARGUMENTS...]        thread sanitizer
#   scripts/sanitize.sh valgrind PREFIX [DRIVERS]    memcheck over rounds.c, OpenCL's drivers included
#
# The sanitizers need a nightly toolchain, and build everything again under target/. The thread sanitizer
# must instrument the standard library to know its locks. It needs the component rust-src, which rustup
# adds if present. ARGUMENTS go to ur-conformance,
# such as `--filter async_`.
# PREFIX and DRIVERS are those of scripts/rounds.sh; ROUNDS and BYTES too.
#
# With UR_INSTALL=1 valgrind is installed with apt-get where it is missing.
#
# The status is 0 without findings, and 1 with the reports otherwise. Without the checker the script prints
# *skipped* with the reason, and the status is 0.
set -euo pipefail
# shellcheck source=need.sh
. "$(dirname "$0")/need.sh"
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
tool=${1:?address, thread or valgrind}
shift
target=x86_64-unknown-linux-gnu
folder=${CARGO_TARGET_DIR:-$root/target}/sanitize/$tool
reports=$folder/reports

skip() {
    echo "sanitize: $tool skipped: $1"
    exit 0
}

# Prints what the checker wrote, and ends the run if it wrote anything.
conclude() {
    if compgen -G "$reports/*" >/dev/null; then
        head -c 20000 "$reports"/*
        echo "sanitize: $tool found something; the reports are in $reports" >&2
        exit 1
    fi
    echo "sanitize: $tool found nothing"
}

sanitizer() {
    cargo +nightly --version >/dev/null 2>&1 || skip "there is no nightly toolchain"
    [ "$(uname -m)" = x86_64 ] || skip "only tried on x86_64"
    local build=()
    if [ "$tool" = thread ]; then
        if [ ! -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]; then
            rustup component add rust-src --toolchain nightly || skip "no rust-src for the nightly toolchain"
        fi
        build=(-Zbuild-std)
    fi
    # The libraries find the checker's functions in the program that loads them.
    export RUSTFLAGS="-Zsanitizer=$tool -Clink-arg=-rdynamic" CARGO_TARGET_DIR=$folder CARGO_PROFILE_DEV_OPT_LEVEL=1
    local quiet=(--quiet "${build[@]}" --target "$target")
    cargo +nightly build "${quiet[@]}" -p ur-loader -p ur-adapter-native-cpu -p ur-conformance
    rm -rf "$reports"
    mkdir -p "$reports"
    # Two findings are known. One suite watches memory on purpose after it released all handles.
    # triomphe's Arc frees after a fence, and so does the reuse of an event's memory. The thread sanitizer
    # does not follow fences, so these frees are declared ordered. (std's Arc loads instead.)
    local known=$folder/known
    printf 'race:%s\n' 'triomphe::arc::Arc*drop_slow' 'object::handle::Object*let_go' \
        'suites::release_while_pending::Destination' >"$known"
    # An ended thread that was not joined is no finding. A worker of ur-conformance keeps its adapter until
    # the process ends, and the last release joins the threads.
    export ASAN_OPTIONS=log_path=$reports/address TSAN_OPTIONS=log_path=$reports/thread:report_thread_leaks=0:suppressions=$known
    local built=$folder/$target/debug
    "$built/ur-conformance" --loader "$built/libur_loader.so" --adapter native_cpu --timeout 600 "$@" || {
        conclude
        exit 1
    }
    conclude
}

memcheck() {
    if ! command -v valgrind >/dev/null; then
        need valgrind || skip "there is no valgrind"
    fi
    rm -rf "$reports"
    mkdir -p "$reports"
    WRAP="valgrind --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite
        --num-callers=40 --fair-sched=yes
        --xml=yes --xml-file=$reports/valgrind.%p" \
        scripts/rounds.sh "$@"
    python3 scripts/valgrind.py "$reports"
}

case $tool in
address | thread) sanitizer "$@" ;;
valgrind) memcheck "$@" ;;
*)
    echo "sanitize: no tool $tool" >&2
    exit 2
    ;;
esac
