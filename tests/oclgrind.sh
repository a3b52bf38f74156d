#!/bin/sh
# Every operation's variants under Oclgrind: any data race, stray access, barrier divergence or read of memory that
# nothing wrote fails. The GPU forms and the CPU forms, as many runs at a time as there are processors.
# usage: tests/oclgrind.sh BUILD [OP...]
set -u
build=$(cd "${1:?usage: tests/oclgrind.sh BUILD [OP...]}" && pwd)
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export WARPDRIVE_CACHE_DIR= WARPDRIVE_TUNING_FILE= build scratch
[ $# -gt 0 ] || set -- fp8_quant causal_conv1d causal_conv1d_update recompute_w_u chunk_fwd_h chunk_fwd_o gdn_prepare \
    gdn_forward gdn_decode

# Unoptimised, since Oclgrind 21.10 knows neither the optimiser's freeze (a kernel that has one is abandoned, and its
# outputs stay NaN) nor all of its intrinsics.
for op in "$@"; do
    for forms in 0 1; do
        echo "$op $forms --data-races --uninitialized --build-options -cl-opt-disable"
    done
done | xargs -P "$(getconf _NPROCESSORS_ONLN)" -I '{}' sh -c '
    set -- {}
    op=$1 forms=$2 log=$scratch/$1.$2
    shift 2
    WARPDRIVE_CPU_FORMS=$forms oclgrind "$@" --max-errors 5 "$build/warpdrive" verify --tiny "$op" >"$log" 2>&1
    status=$?
    grep -qE "race|Uninitialized|Invalid|divergence|ERROR" "$log" && status=1
    [ "$status" -eq 0 ] || mv "$log" "$log.failed"'

for log in "$scratch"/*; do
    printf '%-28s %s\n' "$(basename "$log")" "$(tail -n 1 "$log")"
    case $log in *.failed) grep -vE ' ok$| skip: ' "$log" | head -n 40 ;; esac
done
! ls "$scratch"/*.failed >/dev/null 2>&1
