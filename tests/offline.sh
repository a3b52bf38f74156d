#!/bin/sh
# SPDX-License-Identifier: MIT
# The programs that the model chooses on GPUs which are not here, through their vendors' offline compilers: a line a
# program with its registers, local memory and scratch. Fails where one does not compile, spills registers, keeps
# arrays in scratch memory, or takes more local memory than the device has.
# usage: tests/offline.sh BUILD [DEVICE...]     default: every device whose compiler is installed
#   amd     clang 16 and ROCm's device libraries (Debian: clang-16 rocm-device-libs)
#   intel   ocloc (Debian: intel-opencl-icd); about ten seconds a program
set -u
build=${1:?usage: tests/offline.sh BUILD [DEVICE...]}
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bitcode=/usr/lib/x86_64-linux-gnu/amdgcn/bitcode
export libraries="$scratch/bitcode" options="-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"

# compile COMPILER TARGET FILE KERNEL: FILE.facts gets "registers local scratch spills SIMD", or FILE.log says why not
cat >"$scratch/compile" <<'END'
compiler=$1 target=$2 file=$3 kernel=$4
[ "$target" != pvc ] || # wd_caps.fix_width
    options="$options -Dreqd_work_group_size(x,y,z)=reqd_work_group_size(x,y,z),intel_reqd_sub_group_size(16)"
if [ "$compiler" = amd ]; then
    clang-16 -x cl $options -target amdgcn-amd-amdhsa -mcpu="$target" -O3 -w --rocm-device-lib-path="$libraries" -S \
        -o "$file.s" "$file" 2>"$file.log" || exit 0
    awk -v kernel="$kernel" '
        /^amdhsa.kernels/ { on = 1 }
        on && /^  - \.a/ { n++ }
        on && /\.vgpr_count:/ { registers[n] = $2 }
        on && /\.group_segment_fixed_size:/ { local[n] = $2 }
        on && /\.private_segment_fixed_size:/ { scratch[n] = $2 }
        on && /\.vgpr_spill_count:/ { spills[n] = $2 }
        on && /\.wavefront_size:/ { simd[n] = $2 }
        on && /\.name:/ && $2 == kernel { it = n }
        END { print registers[it], local[it], scratch[it], spills[it] + 0, simd[it] }' "$file.s" >"$file.facts"
else # the tokens of IGC: 15 local memory, 18 spills, 23 width of compilation, 38 private memory
    ocloc compile -file "$file" -device "$target" -options "$options" -output_no_suffix -output "$file.bin" -q \
        >"$file.log" 2>&1 && ocloc disasm -file "$file.bin" -device "$target" -dump "$file.dump" >/dev/null 2>&1 || exit 0
    awk -v kernel="$kernel" '
        function byte(s) { return 16 * index(digits, substr("0" s, length(s), 1)) + index(digits, substr(s, length(s))) }
        function word(i) { return byte($(i + 1)) + 256 * (byte($(i + 2)) + 256 * (byte($(i + 3)) + 256 * byte($(i + 4)))) }
        BEGIN { digits = "123456789abcdef" }
        $1 == "KernelName" { on = $2 == kernel }
        $2 == "Token" { token = $3 }
        on && $1 == "Hex" && token == 15 { local = word(5) }
        on && $1 == "Hex" && token == 18 { spills += word(5) }
        on && $1 == "Hex" && token == 23 { simd = word(13) }
        on && $1 == "Hex" && token == 38 { scratch = word(13) }
        END { print "-", local + 0, scratch + 0, spills + 0, simd }' "$file.dump/PTM.txt" >"$file.facts"
fi
END

has() { # has COMPILER
    case $1 in
    amd) command -v clang-16 >/dev/null && [ -d "$bitcode" ] ;;
    intel) command -v ocloc >/dev/null ;;
    esac
}

# ROCm 5.2 has no library that says "gfx1100"; all that this one tells the others is how fast some instructions are.
mkdir "$libraries"
if has amd; then
    ln -s "$bitcode"/*.bc "$libraries"
    [ -e "$libraries/oclc_isa_version_1100.bc" ] || ln -s oclc_isa_version_1030.bc "$libraries/oclc_isa_version_1100.bc"
fi

failed=0 programs=0
for line in $("$build/tests/offline" | tr ' ' ,); do
    name=${line%%,*} target=${line##*,} compiler=${line#*,} compiler=${compiler%,*}
    case " $* " in *" $name "*) ;; *) [ $# -eq 0 ] && has "$compiler" || continue ;; esac
    mkdir -p "$scratch/$name"
    "$build/tests/offline" "$name" "$scratch/$name" >"$scratch/$name/list" || exit 1
    # Shapes of one class share a program: the first of each.
    while read -r number kernel rest; do
        sum=$(cksum <"$scratch/$name/$number.cl")
        grep -qxF "$sum" "$scratch/$name/sums" 2>/dev/null && continue
        echo "$sum" >>"$scratch/$name/sums"
        echo "$number $kernel $rest" >>"$scratch/$name/unique"
        echo "$compiler $target $scratch/$name/$number.cl $kernel"
    done <"$scratch/$name/list" | xargs -P "$(getconf _NPROCESSORS_ONLN)" -L 1 sh "$scratch/compile"
    printf '%s (%s)\n  registers  local  scratch  spills  width  group  program\n' "$name" "$target"
    while read -r number kernel group limit what; do
        programs=$((programs + 1)) file=$scratch/$name/$number.cl
        if ! read -r registers local private spills width 2>/dev/null <"$file.facts" || [ -z "$width" ]; then
            failed=$((failed + 1))
            printf '  FAILED: %s\n' "$what"
            head -n 5 "$file.log"
            continue
        fi
        mark=
        [ "$private" -eq 0 ] && [ "$spills" -eq 0 ] && [ "$local" -le "$limit" ] || { mark=' FAILED' failed=$((failed + 1)); }
        printf '  %9s  %5d  %7d  %6d  %5d  %5d  %s%s\n' "$registers" "$local" "$private" "$spills" "$width" "$group" "$what" "$mark"
    done <"$scratch/$name/unique"
done
echo "$programs programs, $failed failed"
[ "$failed" -eq 0 ] && [ "$programs" -gt 0 ]
