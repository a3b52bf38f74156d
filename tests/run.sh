#!/bin/sh
# Runs every test program under the build folder and the command line's tests, and adds up their lines.
# usage: tests/run.sh BUILD [PATTERN]     programs whose name holds PATTERN
set -u
build=${1:?usage: tests/run.sh BUILD [PATTERN]}
pattern=${2:-}
here=$(dirname "$0")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export WARPDRIVE_CACHE_DIR="$scratch/cache" CMOCKA_MESSAGE_OUTPUT=TAP
passed=0 failed=0 skipped=0 device_runs=0

add() { # add NAME STATUS LOG
    ok=$(grep -c '^ok' "$3")
    bad=$(grep -c '^not ok' "$3")
    skip=$(grep -ciE '^(not )?ok.*# *skip' "$3")
    [ "$2" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
    passed=$((passed + ok - skip)) failed=$((failed + bad)) skipped=$((skipped + skip))
    if [ "$bad" -gt 0 ]; then
        printf '%-28s FAIL (exit %d)\n' "$1" "$2"
        grep -vE '^ok' "$3" | tail -n 60
    else
        printf '%-28s %d ok%s\n' "$1" "$((ok - skip))" "$([ "$skip" -eq 0 ] || echo ", $skip skipped")"
        grep -iE '^(not )?ok.*# *skip' "$3"
    fi
}

for test in "$build"/tests/test_* "$here"/test_*.sh; do
    name=$(basename "$test")
    case $name in *.o | *.d | *"*"*) continue ;; esac
    case $name in *"$pattern"*) ;; *) continue ;; esac
    "$test" "$build" >"$scratch/log" 2>&1 </dev/null
    add "$name" $? "$scratch/log"
    case $name in test_fp8* | test_causal* | test_chunk* | test_gdn*) device_runs=$((device_runs + ok - skip)) ;; esac
done

if [ -z "$pattern" ] && [ "$device_runs" -eq 0 ]; then
    echo "no test ran on a device" >&2
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
