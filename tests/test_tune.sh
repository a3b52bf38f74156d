#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `warpdrive tune` from outside: killed, interrupted, and with kernels that crash the driver or are wrong.
# usage: tests/test_tune.sh BUILD      prints a line "ok" or "not ok" for each case
set -u
build=${1:?usage: tests/test_tune.sh BUILD}
tool=$build/warpdrive
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export WARPDRIVE_CACHE_DIR=${WARPDRIVE_CACHE_DIR:-$scratch/cache} WARPDRIVE_TUNING_FILE=$scratch/tuning.tune
journal=$WARPDRIVE_TUNING_FILE.journal
shape=tokens=64,hidden=4096
number=0 failed=0

report() { # report RESULT NAME
    number=$((number + 1))
    if [ "$1" = 0 ]; then
        echo "ok $number - $2"
    else
        echo "not ok $number - $2"
        sed 's/^/# /' "$scratch/log"
        failed=$((failed + 1))
    fi
}

tune() { # tune OPTION...: fp8_quant on the CPU, output in the log
    "$tool" tune fp8_quant --device cpu --shape "$shape" "$@" >"$scratch/log" 2>&1 </dev/null
}

if ! "$tool" devices 2>/dev/null | grep -qi cpu; then
    echo "ok 1 - tune # SKIP there is no CPU device"
    exit 0
fi

# Killed with its child in the middle of a trial, it goes on and tries nothing twice but that trial.
"$tool" tune fp8_quant --device cpu --shape "$shape" --budget 300 >"$scratch/log" 2>&1 </dev/null &
parent=$!
for _ in $(seq 600); do
    [ "$(grep -c ^timed "$journal" 2>/dev/null)" -ge 2 ] 2>/dev/null && break
    sleep 0.05
done
child=$(cat "/proc/$parent/task/$parent/children" 2>/dev/null)
kill -KILL $parent $child 2>/dev/null
wait $parent 2>/dev/null
cp "$journal" "$scratch/before"
tune --budget 300
code=$?
known=$(grep -c -E '^(timed|unusable)' "$scratch/before")
again=$(grep -c '/[0-9]* ' "$scratch/log") # a line for each trial
total=$(sed -n 's|.* \([0-9]*\)/\([0-9]*\) .*|\2|p' "$scratch/log" | tail -n 1)
[ $code = 0 ] && [ "$known" -ge 2 ] && [ "$((known + again))" -le "$((total + 1))" ]
report $? "killed and resumed: $known known, the rest of $total tried"

[ ! -e "$journal" ]
report $? "a finished run leaves no journal"

"$tool" query fp8_quant --device cpu "$shape" >"$scratch/log" 2>&1 && grep -q "$WARPDRIVE_TUNING_FILE line" "$scratch/log"
report $? "query cites the record"

# Two records of this device, of which one says what the model says, into a file that has others.
own=$(grep '^fp8_quant' "$WARPDRIVE_TUNING_FILE" | cut -f2)
cp "$WARPDRIVE_TUNING_FILE" "$scratch/kept"
printf 'fp8_quant\t%s\tgroup=128\tplain\t# 2.00x model (1.90 to 2.10)\n' "$own" >"$WARPDRIVE_TUNING_FILE"
printf "fp8_quant\t%s\tgroup=64\tplain\t# the model's choice\n" "$own" >>"$WARPDRIVE_TUNING_FILE"
printf 'fp8_quant\tkind=nobody\tgroup=128\tplain\t# theirs\n' >"$scratch/export.tune"
tune --budget 0 --export "$scratch/export.tune" && tune --budget 0 --export "$scratch/export.tune" &&
    [ "$(grep -cE $'^fp8_quant\tkind=[a-z]+ arch=[a-z0-9]+\tgroup=128\tplain' "$scratch/export.tune")" = 1 ] &&
    grep -q 'kind=nobody' "$scratch/export.tune" && ! grep -qE 'device=|group=64' "$scratch/export.tune"
report $? "export puts what is faster than the model into a file, by architecture"
cp "$scratch/kept" "$WARPDRIVE_TUNING_FILE"

# Interrupted, it keeps what it knows.
rm -f "$WARPDRIVE_TUNING_FILE"
"$tool" tune fp8_quant --device cpu --shape "$shape" --budget 300 >"$scratch/log" 2>&1 </dev/null &
parent=$!
for _ in $(seq 600); do
    [ "$(grep -c ^timed "$journal" 2>/dev/null)" -ge 2 ] 2>/dev/null && break
    sleep 0.05
done
kill -INT $parent
wait $parent
[ $? = 130 ] && grep -q '^fp8_quant' "$WARPDRIVE_TUNING_FILE" && grep -q "goes on from here" "$scratch/log"
report $? "interrupted: exit code 130, and the record is there"

# On a terminal: Ctrl-C ends it, and leaves the terminal as it was.
if command -v python3 >/dev/null; then
    rm -f "$WARPDRIVE_TUNING_FILE" "$journal"
    python3 - "$tool" "$journal" tune fp8_quant --device cpu --shape "$shape" --budget 300 >"$scratch/log" 2>&1 <<'END'
import os, pty, select, sys, termios, time
tool, journal, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
pid, terminal = pty.fork()
if pid == 0:
    os.execv(tool, [tool] + arguments)
before, shown, asked, end = termios.tcgetattr(terminal), b"", False, time.time() + 120
while time.time() < end:
    if not asked and os.path.exists(journal) and "timed" in open(journal).read():
        os.write(terminal, b"\x03")
        asked = True
    if select.select([terminal], [], [], 0.05)[0]:
        try:
            shown += os.read(terminal, 4096)
        except OSError: # its other side is closed
            break
same = termios.tcgetattr(terminal) == before
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(shown.decode(), code, same)
sys.exit(0 if code == 130 and same and b"/7 tried" in shown and b"goes on from here" in shown else 1)
END
    report $? "Ctrl-C on a terminal: exit code 130, and the terminal is as it was"
fi

# One vector length crashes the driver, another leaves everything out and is very fast.
rm -f "$WARPDRIVE_TUNING_FILE" "$journal"
cp -r "$here/../cl" "$scratch/cl"
awk '/__kernel/ { kernel = 1 }
     { print }
     kernel && /^{/ { kernel = 0
         print "#if VL == 8"
         print "    *(volatile __global int *)(size_t)(8 + get_global_id(0)) = 1;"
         print "#elif VL == 4"
         print "    if (get_global_id(0) < (size_t)-1)"
         print "        return;"
         print "#endif" }' "$here/../cl/fp8_quant_cpu.cl" >"$scratch/cl/fp8_quant_cpu.cl"
WARPDRIVE_KERNEL_DIR=$scratch/cl tune --budget 300
[ $? = 0 ] && grep -q "vl=8.*died of signal.*passed over" "$scratch/log" && grep -q "vl=4.*is .*nan, not" "$scratch/log" &&
    grep -q '^fp8_quant' "$WARPDRIVE_TUNING_FILE" && ! grep -qE $'\tcpu vl=(8|4) ' "$WARPDRIVE_TUNING_FILE"
report $? "a candidate that crashes the driver is passed over, a wrong one never wins"

echo "# $number cases, $failed failed"
[ "$failed" = 0 ]
