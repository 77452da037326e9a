#!/bin/sh
# Make .venv and install Pagoda into it: setup.sh VENV EXTRAS, for example `setup.sh .venv engine`.
# Checks first what is missing and names the remedy. Reads PYTHON and PIP_ARGS.
set -eu
cd "$(dirname "$0")/.."
venv=$1
extras=$2
export PIP_DISABLE_PIP_VERSION_CHECK=1
need_gb=6
cuda_gb=10

say() { printf '%s\n' "pagoda: $*"; }

# stop MESSAGE REMEDY: the two lines that a person needs.
stop() {
    printf '%s\n' "pagoda: $1" "remedy: $2" >&2
    exit 1
}

check_system() {
    case $(uname -s) in
        Linux | Darwin) ;;
        *) stop "$(uname -s) is not supported" "use Linux or macOS (on Windows, WSL 2)" ;;
    esac
}

# Prints 3.11 to 3.13 when the interpreter fits; quiet and false when it does not run or fit.
version_of() {
    "$1" -c '
import sys
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit(1)
print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# Sets `python` to the interpreter to use.
find_python() {
    partial=
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
        version=$(version_of "$candidate") || continue
        if has_venv "$candidate"; then
            python=$candidate
            return
        fi
        partial=${partial:-$version}
    done
    [ -z "$partial" ] || stop "Python $partial cannot make virtual environments: venv or ensurepip is missing" \
        "on Debian and Ubuntu: apt install python$partial-venv; elsewhere install Python $partial with ensurepip"
    stop "no Python 3.11, 3.12 or 3.13 was found${PYTHON:+ (PYTHON=$PYTHON)}" \
        "install one (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python@3.13) or name it: make PYTHON=/path/to/python3.13"
}

check_disk() {
    free_gb=$(df -Pk . | awk 'NR == 2 { print int($4 / 1000000) }')
    [ "$free_gb" -ge $need_gb ] || stop "$free_gb GB of disk are free here; $need_gb GB are needed" \
        "free some space, or put the checkout and XDG_CACHE_HOME on a larger disk"
    [ "$free_gb" -ge $cuda_gb ] || [ "$(uname -s)" = Darwin ] ||
        say "$free_gb GB of disk are free: enough for the CPU build of torch, not for the CUDA build ($cuda_gb GB)"
}

install_pagoda() {
    pins=$venv/constraints.txt
    quiet=--quiet
    [ ! -t 1 ] || quiet= # a person watches: let pip draw its progress
    "$venv/bin/python" scripts/pins.py >"$pins"
    rm -f src/pagoda/_native.*.so # kernels of older sources must not outlive a failed build
    # The build's own requirement goes first, so that no second, unpinned copy is fetched for it.
    # shellcheck disable=SC2086  # PIP_ARGS is a list of words, and quiet may be none
    "$venv/bin/python" -m pip install --quiet ${PIP_ARGS:-} -c "$pins" setuptools
    # shellcheck disable=SC2086
    "$venv/bin/python" -m pip install --no-build-isolation $quiet ${PIP_ARGS:-} \
        -c "$pins" -e ".[$extras]" || stop "pip could not install Pagoda: its message is above" \
        "no network: pass an index or a folder of wheels, make PIP_ARGS='--no-index --find-links DIR'; no space: 10 GB for the CUDA build of torch, set TMPDIR when /tmp is small"
}

say_kernels() {
    "$venv/bin/python" -c '
import importlib.util
found = importlib.util.find_spec("pagoda._native")
raise SystemExit(found is None or found.origin is None)' ||
        say "the C kernels were not built (no C compiler?): attention runs on torch, which is slower"
}

check_system
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    find_python
    check_disk
    say "making $venv with Python $version ($python)"
    "$python" -m venv "$venv"
fi
version_of "$venv/bin/python" >/dev/null ||
    stop "$venv holds a Python that Pagoda does not support" "remove it (make clean) and run make again"
say "installing pagoda-kv[$extras]; the first time this takes minutes, most of it torch"
install_pagoda
say_kernels
