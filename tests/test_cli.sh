#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The command line: what works, what is refused, and `run` on every published test case.
# usage: tests/test_cli.sh BUILD      prints a line "ok" or "not ok" for each case
set -u
build=${1:?usage: tests/test_cli.sh BUILD}
tool=$build/warpdrive
compare=$build/tests/npycmp
data=$(dirname "$0")/data
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export WARPDRIVE_CACHE_DIR=${WARPDRIVE_CACHE_DIR:-$scratch/cache}
number=0 failed=0

report() { # report RESULT NAME [LOG]
    number=$((number + 1))
    if [ "$1" = 0 ]; then
        echo "ok $number - $2"
    else
        echo "not ok $number - $2"
        [ -z "${3:-}" ] || sed 's/^/# /' "$3"
        failed=$((failed + 1))
    fi
}

# expect NAME CODE [TEXT] -- ARGUMENTS: the exit code, and a text that stands in what is printed
expect() {
    local name=$1 code=$2 text='' got
    shift 2
    [ "$1" = -- ] || { text=$1; shift; }
    shift
    "$tool" "$@" >"$scratch/log" 2>&1 </dev/null
    got=$?
    [ "$got" = "$code" ] && { [ -z "$text" ] || grep -qF -- "$text" "$scratch/log"; }
    local result=$?
    [ "$result" = 0 ] || echo "exit $got, expected $code and '$text'" >>"$scratch/log"
    report "$result" "$name" "$scratch/log"
}

# json NAME CODE -- ARGUMENTS: the exit code, and one JSON text on stdout
json() {
    local name=$1 code=$2 got
    shift 3
    if ! command -v python3 >/dev/null; then
        number=$((number + 1))
        echo "ok $number - $name # SKIP python3 is not there to read JSON"
        return
    fi
    "$tool" "$@" >"$scratch/json" 2>"$scratch/log" </dev/null
    got=$?
    [ "$got" = "$code" ] && python3 -m json.tool <"$scratch/json" >/dev/null 2>>"$scratch/log"
    local result=$?
    [ "$result" = 0 ] || { echo "exit $got, expected $code"; head -n 5 "$scratch/json"; } >>"$scratch/log"
    report "$result" "$name" "$scratch/log"
}

# npy FILE DESCR SHAPE BYTES: an array of zeros
npy() {
    local head="{'descr': '$2', 'fortran_order': False, 'shape': $3, }"
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$head" >"$1"
    head -c "$4" /dev/zero >>"$1"
}

# ---- Help and usage ----

expect "help lists the commands" 0 "verify" -- --help
expect "help lists the operations" 0 "chunk_fwd_h" -- --help
expect "help explains the exit codes" 0 "Exit codes" -- --help
expect "version" 0 "warpdrive 0." -- --version
expect "no command is refused" 2 "Usage" --
expect "an unknown command is refused" 2 "'frobnicate' is no command" -- frobnicate
for command in devices query verify run bench demo cache doctor; do
    expect "$command has help" 0 "Usage: warpdrive $command" -- $command --help
    expect "$command refuses unknown options" 2 "unknown or ambiguous" -- $command --frobnicate
done
for op in fp8_quant causal_conv1d recompute_w_u chunk_fwd_h chunk_fwd_o; do
    expect "run $op has help" 0 "--dtype" -- run $op --help
done
expect "an option without its value is refused" 2 "needs a value" -- query --device
expect "an operand where none is taken is refused" 2 "takes no operand" -- devices extra

# ---- Without a device ----

mkdir "$scratch/no_icd"
without() { OCL_ICD_VENDORS=$scratch/no_icd OPENCL_VENDOR_PATH=$scratch/no_icd "$@"; }
if without "$tool" devices >/dev/null 2>&1; then
    number=$((number + 1))
    echo "ok $number - without a device # SKIP this loader finds devices whatever its variables say"
else
    without json "devices without a device is valid JSON" 3 -- devices --json
    without expect "devices without a device says so" 3 "doctor" -- devices
    without json "query without a device is valid JSON" 3 -- query fp8_quant tokens=1,hidden=128 --json
    without json "bench without a device is valid JSON" 3 -- bench --json
    without expect "verify without a device" 3 -- verify
    without expect "doctor without a device" 3 "device" -- doctor
fi

if ! "$tool" devices >/dev/null 2>&1; then
    echo "not ok $((number + 1)) - there is a device to test with"
    exit 1
fi

# ---- Devices, query, verify, bench, cache, doctor ----

expect "devices lists one" 0 "0:0" -- devices
json "devices is valid JSON" 0 -- devices --json
expect "no match lists the choices" 3 "0:0" -- query fp8_quant tokens=1,hidden=128 -d nosuchdevice
expect "a device by index" 0 "variant" -- query fp8_quant tokens=1,hidden=128 -d 0
expect "a device by platform:device" 0 "variant" -- query fp8_quant tokens=1,hidden=128 --device 0:0
expect "query explains" 0 "variant" -- query recompute_w_u B=1,T=64,H=2,K=64,V=64
json "query is valid JSON" 0 -- query recompute_w_u B=1,T=64,H=2,K=64,V=64,dtype=bf16 --json
json "a refused query is valid JSON" 2 -- query fp8_quant tokens=1,hidden=130 --json
expect "query wants a shape" 2 "SHAPE" -- query fp8_quant
expect "query refuses unknown operations" 2 "no operation" -- query frobnicate B=1
expect "query refuses unknown names" 2 "there are: tokens" -- query fp8_quant token=1
expect "query refuses words for sizes" 2 "'many' is not a size" -- query fp8_quant tokens=many
expect "query refuses sizes past 64 bits" 2 "is not a size" -- query fp8_quant tokens=99999999999999999999
expect "query refuses unknown choices" 2 "none of: none, silu" -- query causal_conv1d act=relu
expect "query refuses types a tensor has not" 2 "none of:" -- query fp8_quant x_dtype=e4m3
expect "query refuses a group that does not divide" 2 "group" -- query fp8_quant tokens=1,hidden=130,group=128
expect "verify checks one operation" 0 "ok" -- verify fp8_quant
expect "verify refuses unknown operations" 2 "no operation" -- verify frobnicate
expect "bench times a shape" 0 "time/floor" -- bench fp8_quant --shape tokens=16,hidden=256 --budget 20
json "bench is valid JSON" 0 -- bench fp8_quant --shape tokens=16,hidden=256 --budget 20 --json
echo "fp8_quant tokens=4,hidden=128 # a comment" >"$scratch/shapes"
expect "bench reads shapes" 0 "tokens=4,hidden=128" -- bench --shapes "$scratch/shapes" --budget 20
echo "frobnicate x=1" >"$scratch/shapes"
expect "bench names the line it cannot read" 2 "line 1" -- bench --shapes "$scratch/shapes" --budget 20
expect "bench wants the file to be there" 6 "nosuchfile" -- bench --shapes "$scratch/nosuchfile" --budget 20
expect "bench refuses a shape without an operation" 2 "needs one operation" -- bench --shape tokens=1
expect "bench refuses a budget that is none" 2 "milliseconds" -- bench --budget soon
expect "bench times copies" 0 "256 MiB" -- bench --copies
json "times of copies are valid JSON" 0 -- bench --copies --json
expect "bench goes on after a shape that does not fit" 0 "memory" -- bench fp8_quant --shape tokens=1000000,hidden=65536

# records FILE FACTOR [SHAPE]: a run of bench with one case of ten rounds, FACTOR x 1 ms and a little more each
records() {
    awk -v factor="$2" -v shape="${3:-tokens=1,hidden=128}" 'BEGIN {
        printf "{\"format\": \"warpdrive bench 1\", \"version\": \"0\", \"date\": \"\", \"device\": \"none\", \"driver\": \"\","
        printf "\"platform\": \"\", \"copy_bytes_per_s\": 1e9, \"fma_flops_per_s\": 1e9, \"copy_samples\": [], \"fma_samples\": [],"
        printf "\"results\": [{\"operation\": \"fp8_quant\", \"shape\": \"%s\", \"ok\": true, \"variant\": \"cpu\",", shape
        printf "\"choice\": \"cpu vl=8\", \"reason\": \"\", \"bound\": \"memory\", \"error\": 0, \"bytes\": 1000, \"flops\": 1,"
        printf "\"floor_ns\": 900000, \"samples_ns\": ["
        for (i = 0; i < 10; i++) printf "%s%.0f", i ? ", " : "", factor * (1e6 + 1e4 * i)
        print "]}]}"
    }' >"$1"
}
records "$scratch/old.json" 1
records "$scratch/slow.json" 1.2
records "$scratch/fast.json" 0.8
records "$scratch/other.json" 1 tokens=2,hidden=128
head -c 300 "$scratch/old.json" >"$scratch/cut.json"
expect "bench shows an earlier run" 0 "tokens=1,hidden=128" -- bench --from "$scratch/old.json"
expect "bench beside the same run" 0 "0 slower, 0 faster, 1 the same" -- bench --from "$scratch/old.json" --compare "$scratch/old.json"
expect "bench beside a faster run" 1 "1 slower, 0 faster, 0 the same" -- bench --from "$scratch/slow.json" --compare "$scratch/old.json"
expect "bench beside a slower run" 0 "0 slower, 1 faster, 0 the same" -- bench --from "$scratch/fast.json" --compare "$scratch/old.json"
expect "bench lists what only the earlier run has" 0 "only there: fp8_quant tokens=1,hidden=128" -- \
    bench --from "$scratch/other.json" --compare "$scratch/old.json"
json "a comparison is valid JSON" 1 -- bench --from "$scratch/slow.json" --compare "$scratch/old.json" --json
expect "bench names the place in a cut file" 2 "cut.json: line 1, column 300" -- bench --compare "$scratch/cut.json"
expect "bench wants the earlier run to be there" 6 "nosuchfile" -- bench --compare "$scratch/nosuchfile"
expect "bench refuses an earlier run of another device" 2 "another device, 'none'" -- bench fp8_quant --compare "$scratch/old.json"
expect "bench draws a chart" 0 -- bench --from "$scratch/old.json" --plot "$scratch/chart.svg"
if command -v python3 >/dev/null; then
    python3 -c 'import sys, xml.dom.minidom as m; assert m.parse(sys.argv[1]).documentElement.tagName == "svg"' \
        "$scratch/chart.svg" >"$scratch/log" 2>&1
    report $? "a chart is well-formed XML" "$scratch/log"
fi
expect "bench says where it cannot draw" 6 "nosuchfolder" -- bench --from "$scratch/old.json" --plot "$scratch/nosuchfolder/x.svg"
expect "bench measures nothing beside --from" 2 "--dtype says nothing" -- bench --from "$scratch/old.json" --dtype f16
"$tool" bench fp8_quant --shape tokens=16,hidden=256 --dtype f32,bf16 --budget 20 --json >"$scratch/real.json" 2>/dev/null </dev/null
expect "bench reads what it wrote" 0 "tokens=16,hidden=256,group=128,dtype=bf16" -- bench --from "$scratch/real.json"
expect "demo wants its data" 6 "nosuchfolder" -- demo --data "$scratch/nosuchfolder"
expect "cache path" 0 "$WARPDRIVE_CACHE_DIR" -- cache path
expect "cache list" 0 "program" -- cache list
expect "cache prune" 0 "removed" -- cache prune --limit 1000
expect "cache refuses what it does not know" 2 "none of" -- cache frobnicate
expect "cache refuses a limit that is none" 2 "MiB" -- cache prune --limit big
expect "doctor names the cache" 0 "$WARPDRIVE_CACHE_DIR" -- doctor

# ---- Run: every published test case ----

# check NAME FOLDER OP [OPTIONS] -- NAME=FILE...: run writes what the folder holds
check() {
    local name=$1 folder=$2 op=$3 options=() outputs=() bad=0 pair
    shift 3
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    for pair in "$@"; do outputs+=("--${pair%%=*}" "$scratch/out_${pair%%=*}.npy"); done
    rm -f "$scratch"/out_*
    "$tool" run "$op" "${options[@]}" "${outputs[@]}" >"$scratch/log" 2>&1 || bad=1
    for pair in "$@"; do
        [ "$bad" = 0 ] || break
        "$compare" "$folder/${pair#*=}" "$scratch/out_${pair%%=*}.npy" >>"$scratch/log" 2>&1 || bad=1
    done
    report "$bad" "$name" "$scratch/log"
}

param() { sed -n "s/^$2=//p" "$1/params.txt"; }

# inputs FOLDER NAME...: "--name folder/name.npy" for the files that are there
inputs() {
    local folder=$1 name
    shift
    for name in "$@"; do
        [ ! -f "$folder/$name.npy" ] || printf '%s\n' "--$name" "$folder/$name.npy"
    done
}

for case in "$data"/*/*/; do
    case=${case%/} set=$(basename "$(dirname "$case")") name=$(basename "$case")
    name="run reproduces $set/$name"
    case $set/$(basename "$case") in
    fp8_bytes/convert_table) ;; # conversions, not an operation: tests/test_convert.c
    fp8_quant/*)
        check "$name" "$case" fp8_quant --x "$case/x.npy" --group "$(param "$case" group_size)" -- q=x_q.npy s=x_s.npy
        ;;
    fp8_bytes/*)
        check "$name" "$case" fp8_quant --x "$case/x.npy" --group "$(param "$case" group_size)" --q_dtype e4m3 -- \
            q=x_e4m3.npy s=x_s.npy
        check "$name in f32" "$case" fp8_quant --x "$case/x.npy" --group "$(param "$case" group_size)" -- q=x_q.npy
        ;;
    causal_conv1d*/*)
        act=$(param "$case" activation)
        mapfile -t options < <(inputs "$case" x weight bias initial_state)
        outputs=(out=out.npy)
        [ ! -f "$case/final_state.npy" ] || outputs+=(final_state=final_state.npy)
        check "$name" "$case" causal_conv1d "${options[@]}" --act "${act:-none}" -- "${outputs[@]}"
        ;;
    gated_deltanet_recompute_w_u/*)
        mapfile -t options < <(inputs "$case" k v beta A g)
        check "$name" "$case" recompute_w_u "${options[@]}" -- w=w.npy u=u.npy
        ;;
    gated_deltanet_chunk_fwd_h/*)
        mapfile -t options < <(inputs "$case" k w u g)
        check "$name" "$case" chunk_fwd_h "${options[@]}" -- h=h.npy v_new=v_new.npy
        ;;
    gated_deltanet_chunk_fwd_o/*)
        mapfile -t options < <(inputs "$case" q k v_new h g)
        check "$name" "$case" chunk_fwd_o "${options[@]}" -- o=o.npy
        ;;
    gated_delta_rule/*)
        mapfile -t options < <(inputs "$case" q k v g beta initial_state)
        check "$name" "$case" gdn_forward "${options[@]}" --scale "$(param "$case" scale)" -- o=o.npy \
            final_state=final_state.npy
        ;;
    *) report 1 "$name: nothing here knows this set" ;;
    esac
done

# ---- Run: types and refusals ----

fp8=$data/fp8_quant/num_tokens16_hidden_dim1024_group_size64
conv=$data/causal_conv1d/B2_D128_S128_W4
npy "$scratch/bf16.npy" '<u2' '(4, 256)' 2048
npy "$scratch/f16.npy" '<f2' '(4, 256)' 2048
npy "$scratch/f64.npy" '<f8' '(4, 256)' 8192
npy "$scratch/f32_3d.npy" '<f4' '(1, 4, 256)' 4096
npy "$scratch/empty.npy" '<f4' '(0, 256)' 0
npy "$scratch/short.npy" '<f4' '(4, 256)' 100
npy "$scratch/h.npy" '<f4' '(1, 2, 2, 64, 64)' 65536
npy "$scratch/g.npy" '<f4' '(1, 64, 3)' 768
npy "$scratch/rows.npy" '<f4' '(1, 90, 8)' 2880
npy "$scratch/filter.npy" '<f4' '(8, 4)' 128
npy "$scratch/offsets.npy" '<i8' '(3,)' 24
printf '\x28' | dd of="$scratch/offsets.npy" bs=1 seek=$((128 + 8)) conv=notrunc 2>/dev/null  # 0, 40, 90
printf '\x5a' | dd of="$scratch/offsets.npy" bs=1 seek=$((128 + 16)) conv=notrunc 2>/dev/null
npy "$scratch/k.npy" '<f4' '(1, 90, 2, 8)' 5760
npy "$scratch/gate.npy" '<f4' '(1, 90, 2)' 720
out=$scratch/result.npy

expect "run reads bf16 when told" 0 -- run fp8_quant --x "$scratch/bf16.npy" --dtype bf16 --q "$out" --q_dtype e5m2
expect "run asks what u2 means" 2 "--dtype bf16" -- run fp8_quant --x "$scratch/bf16.npy" --q "$out"
expect "run reads f16" 0 -- run fp8_quant --x "$scratch/f16.npy" --s "$out" --s_dtype ue8m0 --s_layout column
expect "run reads packed sequences, and 64-bit offsets" 0 -- run causal_conv1d --x "$scratch/rows.npy" --weight \
    "$scratch/filter.npy" --cu_seqlens "$scratch/offsets.npy" --layout bsd --out "$out" --final_state "$scratch/state.npy"
expect "run does nothing on nothing" 0 -- run fp8_quant --x "$scratch/empty.npy" --q "$out"
expect "run writes f32x2 as f64" 0 -- run gdn_prepare --k "$scratch/k.npy" --gate "$scratch/gate.npy" --beta \
    "$scratch/gate.npy" --g "$scratch/sum.npy" --g_dtype f32x2 --A "$scratch/A.npy"
expect "run reads it again" 0 -- run recompute_w_u --k "$scratch/k.npy" --v "$scratch/k.npy" --beta "$scratch/gate.npy" \
    --A "$scratch/A.npy" --g "$scratch/sum.npy" --w "$out"
expect "run refuses f64" 2 "float32" -- run fp8_quant --x "$scratch/f64.npy" --q "$out"
expect "run refuses a type that the file has not" 2 "holds f4" -- run fp8_quant --x "$fp8/x.npy" --x_dtype bf16 --q "$out"
expect "run refuses a wrong number of dimensions" 2 "[tokens][hidden]" -- run fp8_quant --x "$scratch/f32_3d.npy" --q "$out"
expect "run refuses a cut file" 2 "100 bytes of data" -- run fp8_quant --x "$scratch/short.npy" --q "$out"
expect "run refuses what is no .npy file" 2 "not a .npy file" -- run fp8_quant --x "$0" --q "$out"
expect "run wants the files to be there" 6 "nosuchfile" -- run fp8_quant --x "$scratch/nosuchfile" --q "$out"
expect "run wants the inputs" 2 "--weight is missing" -- run causal_conv1d --x "$conv/x.npy" --out "$out"
expect "run wants an output" 2 "no output" -- run fp8_quant --x "$fp8/x.npy"
expect "run wants two files for two outputs" 2 "both name" -- run fp8_quant --x "$fp8/x.npy" --q "$out" --s "$out"
expect "run wants an operation" 2 "needs an operation" -- run
expect "run refuses unknown operations" 2 "no operation" -- run frobnicate
expect "run refuses a group that does not divide" 2 "group" -- run fp8_quant --x "$fp8/x.npy" --group 100 --q "$out"
expect "run refuses an option of another operation" 2 "unknown" -- run fp8_quant --x "$fp8/x.npy" --bias "$out"
expect "run refuses a type without its tensor" 2 "--bias is missing" -- run causal_conv1d --x "$conv/x.npy" --weight \
    "$conv/weight.npy" --bias_dtype f16 --out "$out"

weight=$data/causal_conv1d/B4_D64_S128_W4/weight.npy
for text in "$conv/x.npy (2 x 128 x 128" "$weight (64 x 4" "D is 128"; do
    expect "files that disagree are named: ${text##*/}" 2 "$text" -- run causal_conv1d --x "$conv/x.npy" --weight "$weight" \
        --out "$out"
done
wu=$data/gated_deltanet_recompute_w_u/B1_T64_H2_K64_V64
expect "gates of other heads are refused" 2 "g.npy (1 x 64 x 3" -- run recompute_w_u --k "$wu/k.npy" --v "$wu/v.npy" \
    --beta "$wu/beta.npy" --A "$wu/A.npy" --g "$scratch/g.npy" --w "$out"
o=$data/gated_deltanet_chunk_fwd_o/B1_T64_H2_K64_V64
expect "a state of too many chunks is refused" 2 "does not go with" -- run chunk_fwd_o --q "$o/q.npy" --k "$o/k.npy" --v_new \
    "$o/v_new.npy" --h "$scratch/h.npy" --g "$o/g.npy" --o "$out"
expect "a size against a file is refused" 2 "given as 3" -- run fp8_quant --x "$fp8/x.npy" --tokens 3 --q "$out"

# ---- Run: outputs are whole or not there ----

echo before >"$scratch/kept.npy"
expect "a place that cannot be written" 6 "nosuchfolder" -- run fp8_quant --x "$fp8/x.npy" --q "$scratch/kept.npy" \
    --s "$scratch/nosuchfolder/s.npy"
grep -qx before "$scratch/kept.npy"
report $? "a failed run leaves the outputs as they were"
expect "a refused call with an output in place" 2 "group" -- run fp8_quant --x "$fp8/x.npy" --group 100 --q "$scratch/kept.npy"
grep -qx before "$scratch/kept.npy"
report $? "a refused run leaves the outputs as they were"
[ -z "$(find "$scratch" -name '*.tmp')" ]
report $? "no temporary file is left"

# ---- A cache of its own, since other tests use the common one ----

export WARPDRIVE_CACHE_DIR=$scratch/apart
expect "a run fills the cache" 0 -- run fp8_quant --x "$fp8/x.npy" --group 64 --q "$out"
expect "cache list shows the program" 0 "1 program, " -- cache list
expect "cache prune to nothing" 0 "removed 1" -- cache prune --limit 0
expect "a run fills the cache again" 0 -- run fp8_quant --x "$fp8/x.npy" --group 64 --q "$out"
expect "cache clear" 0 "removed 1" -- cache clear
expect "an empty cache lists nothing" 0 "0 programs, " -- cache list

echo "1..$number"
[ "$failed" = 0 ]
