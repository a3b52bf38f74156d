#!/bin/sh
# Runs every test program under the build folder and the scripts tests/test_*.sh, as many at a time as there are
# processors, and adds up their lines (TAP).
# usage: tests/run.sh BUILD [PATTERN]     those whose name matches the extended regular expression
set -u
build=$(cd "${1:?usage: tests/run.sh BUILD [PATTERN]}" && pwd)
pattern=${2:-.}
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Each test that is about the disk cache makes one of its own; the others have none. PoCL keeps its own, which the
# programs share.
export CMOCKA_MESSAGE_OUTPUT=TAP WARPDRIVE_CACHE_DIR= WARPDRIVE_TUNING_FILE= build scratch
export POCL_CACHE_DIR="${POCL_CACHE_DIR:-$scratch/pocl}"

for test in "$build"/tests/test_* "$here"/test_*.sh; do
    case $(basename "$test") in *.o | *.d | *"*"*) continue ;; esac
    basename "$test" | grep -qE "$pattern" && echo "$test"
done >"$scratch/list"

# The longest first, so that none is left alone at the end.
longest='test_(chunk|mma|gdn|causal|cli|tune)'
{ grep -E "$longest" "$scratch/list"; grep -vE "$longest" "$scratch/list"; } |
    xargs -P "$(getconf _NPROCESSORS_ONLN)" -I '{}' sh -c '
        name=$(basename "{}")
        start=$(date +%s)
        "{}" "$build" >"$scratch/$name.log" 2>&1 </dev/null
        echo "$? $(($(date +%s) - start))" >"$scratch/$name.end"'

passed=0 failed=0 skipped=0 device_runs=0
while read -r test; do
    name=$(basename "$test")
    log=$scratch/$name.log
    read -r status seconds <"$scratch/$name.end"
    skip=$(grep -ciE '^(not )?ok.*# *skip' "$log") # cmocka says "not ok" of a skipped test
    ok=$(grep -viE '# *skip' "$log" | grep -c '^ok')
    bad=$(grep -viE '# *skip' "$log" | grep -c '^not ok')
    [ "$status" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
    case $name in test_fp8* | test_causal* | test_chunk* | test_gdn*) device_runs=$((device_runs + ok)) ;; esac
    printf '%-30s %4d ok%s%s (%d s)\n' "$name" "$ok" "$([ "$skip" -eq 0 ] || echo ", $skip skipped")" \
        "$([ "$bad" -eq 0 ] || echo ", $bad FAILED, exit $status")" "$seconds"
    grep -iE '^(not )?ok.*# *skip' "$log"
    [ "$bad" -eq 0 ] || grep -vE '^ok' "$log" | tail -n 60
done <"$scratch/list"

if [ "$pattern" = . ] && [ "$device_runs" -eq 0 ]; then
    echo "no test ran on a device" >&2
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
