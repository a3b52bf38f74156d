#!/bin/sh
# Installs what the build and the tests need and this machine lacks, and the packages given as arguments. Debian and
# Ubuntu; elsewhere it says what is missing.
set -eu

missing=
need() { # need PACKAGE TEST...
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
has_header() { echo "#include <$1>" | ${CC:-cc} -E -x c - ; }
has_library() { echo 'int main(void){return 0;}' | ${CC:-cc} -x c - -o /dev/null "-l$1"; }
has_cmocka() { printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <cmocka.h>\n' | ${CC:-cc} -E -x c - ; }
has_device() { ls "${OCL_ICD_VENDORS:-/etc/OpenCL/vendors}"/*.icd || [ -n "${OCL_ICD_FILENAMES:-}" ]; }

need gcc command -v "${CC:-cc}"
need g++ command -v "${CXX:-c++}"
need opencl-headers has_header CL/cl.h
need ocl-icd-opencl-dev has_library OpenCL
need pocl-opencl-icd has_device
need libjansson-dev has_library jansson
need libcmocka-dev has_cmocka

for package in "$@"; do
    need "$package" dpkg -s "$package"
done

[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "Missing:$missing (Debian's names). This system has no apt-get; install them its own way and try again." >&2
    exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "Missing:$missing. Become root, or install sudo." >&2; exit 1; }
    sudo=sudo
fi
echo "installing$missing"
$sudo apt-get update -qq
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
