#!/bin/sh
# The whole grid of gdn_forward (tests/test_gdn_grid.c): every width, length, number of heads, type, state and gates,
# with the CPU forms and with those for GPUs. It takes about 18 hours on two cores, so it goes slice by slice, keeps in
# BUILD/grid which ones are done, and goes on from there when it is called again.
# usage: tests/grid.sh BUILD [FIRST [LAST]]     slices FIRST to LAST of 200; any few are a fair sample
# environment: FORMS: values of WARPDRIVE_CPU_FORMS to try ("1 0"); RUNNER: what to put before the command
set -u
build=$(cd "${1:?usage: tests/grid.sh BUILD [FIRST [LAST]]}" && pwd)
slices=200 failed=0
mkdir -p "$build/grid"
export WARPDRIVE_CACHE_DIR= WARPDRIVE_TUNING_FILE=

for slice in $(seq "${2:-1}" "${3:-$slices}"); do
    for forms in ${FORMS:-1 0}; do
        log=$build/grid/$slice.$forms
        [ -e "$log.ok" ] && continue
        start=$(date +%s)
        POCL_CACHE_DIR=$(mktemp -d)
        export POCL_CACHE_DIR
        # shellcheck disable=SC2086 # RUNNER is a command with arguments
        WARPDRIVE_CPU_FORMS=$forms WARPDRIVE_TEST_ALL=$slice/$slices ${RUNNER:-} "$build/tests/test_gdn_grid" \
            >"$log" 2>&1 </dev/null
        status=$?
        rm -rf "$POCL_CACHE_DIR"
        if [ "$status" -eq 0 ]; then
            mv "$log" "$log.ok"
        else
            failed=$((failed + 1))
            grep -E 'ERROR|grid' "$log"
        fi
        echo "slice $slice of $slices, WARPDRIVE_CPU_FORMS=$forms: exit $status ($(($(date +%s) - start)) s)"
    done
done
echo "$(find "$build/grid" -name '*.ok' | wc -l) slices passed so far, $failed failed now"
[ "$failed" -eq 0 ]
