#!/bin/sh
# Serve a model with vLLM over Pagoda's drives: vllm.sh MODEL_DIRECTORY CACHE_DIRECTORY [FLAGS].
# What vLLM computed is found again after a restart, checked. docs/guides/vllm.md explains it.
set -eu
model=$1
cache=$2
shift 2
pagoda connect check vllm
exec vllm serve "$model" --kv-transfer-config "$(cat <<JSON
{
  "kv_connector": "OffloadingConnector",
  "kv_role": "kv_both",
  "kv_load_failure_policy": "recompute",
  "kv_connector_extra_config": {
    "spec_name": "TieringOffloadingSpec",
    "cpu_bytes_to_use": 8000000000,
    "secondary_tiers": [
      {
        "type": "PagodaTier",
        "module_path": "pagoda.connect.vllm",
        "settings": { "drive": { "path": "$cache", "capacity": "100GiB" } }
      }
    ]
  }
}
JSON
)" "$@"
