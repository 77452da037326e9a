#!/bin/sh
# Make the virtual environment of the tests on the real SGLang, once: engine_sglang.sh [DIRECTORY].
# Prints where it is. About 1.6 GB and two minutes; reads PYTHON and PIP_ARGS.
#
# SGLang has no CPU build of its kernels and needs a GPU's packages to be installed as it asks.
# This installs it alone, with what serving text needs; tests/engines/sglang stands in for the
# kernels. C++ is compiled when it first runs (g++).
set -eu
version=0.5.23
# shellcheck source=scripts/engine.sh
. "$(dirname "$0")/engine.sh"
home=${1:-$engines/sglang-$version}

requirements() {
    cat <<'END'
torch==2.13.0
transformers==5.19.0
apache-tvm-ffi==0.1.11
aiohttp
dill
einops
fastapi
gguf
jsonschema
loguru
msgspec
ninja
numpy
openai
orjson
packaging
partial_json_parser
pillow
prometheus-client
psutil
pybase64
pydantic
python-multipart
pyzmq
requests
sentencepiece
setproctitle
soundfile
tqdm
uvicorn
uvloop
IPython
END
    pagoda_requirements
}

if [ ! -f "$home/.complete" ]; then
    make_environment "SGLang $version for CPUs"
    requirements >"$home/requirements.txt"
    pip -r "$home/requirements.txt"
    pip --no-deps "sglang==$version" torchvision==0.28.0 compressed_tensors==0.18.0 xgrammar==0.2.9
    touch "$home/.complete"
fi
echo "$home"
