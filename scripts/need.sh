# `need PACKAGE...`: what a script lacks. Packages of the system are installed only if UR_INSTALL=1 says so,
# as CI does; otherwise the reader is told, and the status is 1.
need() {
    if [ -z "${UR_INSTALL:-}" ]; then
        echo "missing: apt-get install $* (with UR_INSTALL=1 this script does it)" >&2
        return 1
    fi
    apt-get update -qq && apt-get install -y -qq "$@" >/dev/null
}
