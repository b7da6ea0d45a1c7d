# `need PACKAGE...`: installs missing packages of the system if UR_INSTALL=1 is set, as in CI. Otherwise
# prints them and returns 1.
need() {
    if [ -z "${UR_INSTALL:-}" ]; then
        echo "missing: apt-get install $* (with UR_INSTALL=1 this script does it)" >&2
        return 1
    fi
    apt-get update -qq && apt-get install -y -qq "$@" >/dev/null
}
