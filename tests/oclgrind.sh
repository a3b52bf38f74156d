#!/bin/sh
# Every operation's variants under Oclgrind: any data race, stray access, barrier divergence or read of memory that
# nothing wrote fails. The GPU forms first, then the CPU forms.
# usage: tests/oclgrind.sh BUILD [OP...]
set -u
build=${1:?usage: tests/oclgrind.sh BUILD [OP...]}
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export WARPDRIVE_CACHE_DIR= WARPDRIVE_TUNING_FILE=
status=0
for forms in 0 1; do
    WARPDRIVE_CPU_FORMS=$forms oclgrind --data-races --uninitialized --max-errors 5 --build-options "-cl-opt-disable" \
        "$build/warpdrive" verify --tiny "$@" >"$log" 2>&1 </dev/null || status=1
    if grep -qE 'race|Uninitialized|Invalid|divergence|Error' "$log"; then
        status=1
    fi
    [ "$status" -eq 0 ] || grep -vE ' ok$| skip: ' "$log" | head -n 60
    tail -n 1 "$log"
done
exit $status
