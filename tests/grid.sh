#!/bin/sh
# The whole grid of gdn_forward (tests/test_gdn_grid.c): every width, length, number of heads, type, state and gates,
# with the CPU forms and with those for GPUs. It takes about 18 hours on two cores and 7 minutes on a GPU whose host
# has 16, so it goes slice by slice, keeps in BUILD/grid which ones are done, and goes on from there when it is called
# again.
# usage: tests/grid.sh BUILD [FIRST [LAST]]     slices FIRST to LAST of 200; any few are a fair sample
# environment: FORMS: values of WARPDRIVE_CPU_FORMS to try ("1 0"; on a GPU: "0"); JOBS: slices at a time (1);
#              WARPDRIVE_TEST_DEVICE: the device; RUNNER: what to put before the command
set -u
slices=200

one_slice() { # one_slice BUILD SLICE
    for forms in ${FORMS:-1 0}; do
        log=$1/grid/$2.$forms
        [ -e "$log.ok" ] && continue
        start=$(date +%s)
        POCL_CACHE_DIR=$(mktemp -d)
        export POCL_CACHE_DIR
        # shellcheck disable=SC2086 # RUNNER is a command with arguments
        WARPDRIVE_CPU_FORMS=$forms WARPDRIVE_TEST_ALL=$2/$slices ${RUNNER:-} "$1/tests/test_gdn_grid" \
            >"$log" 2>&1 </dev/null
        status=$?
        rm -rf "$POCL_CACHE_DIR"
        if [ "$status" -eq 0 ]; then
            mv "$log" "$log.ok"
        else
            grep -E 'ERROR|grid' "$log"
        fi
        echo "slice $2 of $slices, WARPDRIVE_CPU_FORMS=$forms: exit $status ($(($(date +%s) - start)) s)"
    done
}

if [ "${1-}" = --slice ]; then # of this script's own making
    one_slice "$2" "$3"
    exit
fi
build=$(cd "${1:?usage: tests/grid.sh BUILD [FIRST [LAST]]}" && pwd)
mkdir -p "$build/grid"
find "$build/grid" -type f ! -name '*.ok' -delete
export WARPDRIVE_CACHE_DIR= WARPDRIVE_TUNING_FILE=
seq "${2:-1}" "${3:-$slices}" | xargs -P "${JOBS:-1}" -I{} "$0" --slice "$build" {}
passed=$(find "$build/grid" -name '*.ok' | wc -l) failed=$(find "$build/grid" -type f ! -name '*.ok' | wc -l)
echo "$passed slices passed so far, $failed failed now"
[ "$failed" -eq 0 ]
