#!/bin/sh
# Serve a model with SGLang over Pagoda's drives: sglang.sh MODEL_DIRECTORY CACHE_DIRECTORY [FLAGS].
# What SGLang computed is found again after a restart, checked. docs/guides/sglang.md explains it.
set -eu
model=$1
cache=$2
shift 2
pagoda connect check sglang
exec python -m sglang.launch_server --model-path "$model" \
  --enable-hierarchical-cache \
  --hicache-storage-backend dynamic \
  --hicache-storage-backend-extra-config "$(cat <<JSON
{
  "backend_name": "pagoda",
  "module_path": "pagoda.connect.sglang",
  "class_name": "PagodaStorage",
  "interface_v1": 1,
  "settings": { "drive": { "path": "$cache", "capacity": "100GiB" } }
}
JSON
)" "$@"
