# What engine_vllm.sh and engine_sglang.sh share: how the virtual environment of an engine is made.
# To be sourced. Reads PYTHON and PIP_ARGS; `home` is the environment's directory.
#
# Pagoda itself is not installed there: tests put this checkout's sources on the path.
export PIP_DISABLE_PIP_VERSION_CHECK=1
source=$(cd "$(dirname "$0")/.." && pwd)
engines=${XDG_CACHE_HOME:-$HOME/.cache}/pagoda/engines

pip() {
    # shellcheck disable=SC2086  # PIP_ARGS is a list of words
    "$home/bin/python" -m pip install --quiet ${PIP_ARGS:-} "$@" >&2
}

# make_environment WHAT: an empty environment, whatever was there.
make_environment() {
    echo "pagoda: installing $1 into $home" >&2
    rm -rf "$home"
    "${PYTHON:-$(command -v python3.11 || echo python3)}" -m venv "$home" >&2
}

# What Pagoda's base package requires, one a line.
pagoda_requirements() {
    "$home/bin/python" -c '
import sys, tomllib

with open(sys.argv[1], "rb") as file:
    print(*tomllib.load(file)["project"]["dependencies"], sep="\n")' "$source/pyproject.toml"
}
