# Steps of a check: `step NAME "What it is" COMMAND...` for each, then `steps ARGUMENTS`.
#
#   SCRIPT               every step, in order; the first that fails ends the run
#   SCRIPT NAME...       these steps alone
#   SCRIPT --list        their names

names=()
declare -A whats commands

step() {
    local name=$1 what=$2
    shift 2
    names+=("$name")
    whats[$name]=$what
    # Quoted, since a clone may lie in a folder with a space in its name.
    commands[$name]=$(printf '%q ' "$@")
}

steps() {
    if [ "${1:-}" = --list ]; then
        for name in "${names[@]}"; do
            printf '%-12s %s\n' "$name" "${whats[$name]}"
        done
        return
    fi
    local wanted=("$@") name began
    [ $# -gt 0 ] || wanted=("${names[@]}")
    for name in "${wanted[@]}"; do
        if [ -z "${commands[$name]:-}" ]; then
            echo "no step $name; there are: ${names[*]}" >&2
            return 2
        fi
    done
    for name in "${wanted[@]}"; do
        printf '\n== %s: %s\n' "$name" "${whats[$name]}"
        began=$SECONDS
        eval "${commands[$name]}"
        printf '== %s took %s s\n' "$name" $((SECONDS - began))
    done
}
