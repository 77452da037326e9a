"""A real vLLM engine in a process of its own: commands as JSON lines in, answers out.

    {"do": "ask", "text": "…", "length": 700, "salt": "", "tokens": 8, "params": {}}
    {"do": "many", "prompts": [[1, 2]], "tokens": 8}    several at once, by their tokens
    {"do": "reset"}            forgets what is cached on the device and in host memory
    {"do": "reset-device"}     forgets what is cached on the device
    {"do": "stick"}            from now on reads of drives hang, until
    {"do": "unstick"}
    {"do": "faults", …}        from now on drives have these (vllm_faults.py); how many there were
    {"do": "metrics"}
    {"do": "calls"}            seconds of each call that vLLM's scheduler made of the tier
    {"do": "events"}           what was published for routers since the last time
    {"do": "stop"}

Started with the path of a JSON file: model, tiers, host_bytes, host (more of the connector's extra
configuration, such as its eviction policy), llm (more of vLLM's own arguments), beside (another
connector's configuration: both work under a MultiConnector), events (true: vLLM publishes events
for routers), pause_s (faults can be asked for, and
a drive rests that long after one), wrong (true: the seal's check is off, so that changed
bytes are served) and recorded (a file that takes what vLLM asks of PagodaPolicy).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import vllm_probes as probes


def main() -> None:
    said = sys.stdout
    sys.stdout = sys.stderr  # vLLM talks on it
    plan = json.loads(Path(sys.argv[1]).read_text())
    try:
        engine = Engine(plan)
    except Exception as error:
        print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), file=said, flush=True)
        raise SystemExit(1) from error
    print(json.dumps({"ready": True}), file=said, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "stop":
            break
        print(json.dumps(engine.do(command)), file=said, flush=True)
    engine.stop()
    print(json.dumps({"stopped": True}), file=said, flush=True)


class Engine:
    """One engine; `do` carries out a command."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.times: dict[str, list[float]] = {}
        if plan.get("wrong"):
            probes.serve_anything()
        self._stuck = probes.stoppable_reads()
        if plan.get("timed"):
            probes.time_calls(self.times)
        if plan.get("recorded"):
            from policy_recorder import record

            record(Path(plan["recorded"]))
        if plan.get("pause_s"):
            from vllm_faults import install

            self._faults = install(pause_s=plan["pause_s"])
        from vllm import LLM

        own = {
            "enforce_eager": True,
            "max_model_len": 4096,
            "max_num_batched_tokens": 4096,
            "seed": 7,
            "disable_log_stats": False,
            "kv_transfer_config": _connectors(plan),
            "kv_events_config": {"enable_kv_cache_events": bool(plan.get("events"))},
        }
        self._llm = LLM(model=plan["model"], **{**own, **plan.get("llm", {})})
        self._told = probes.published(self._llm)

    def do(self, command: dict[str, Any]) -> dict[str, Any]:
        """Carry out a command; what it answers."""
        answers = {
            "ask": self._ask,
            "many": self._many,
            "faults": lambda faults: {"counts": self._faults.begin(faults)},
            "metrics": lambda _: {"metrics": self._metrics()},
            "calls": lambda _: {"calls": self.times},
            "events": lambda _: {"events": self._events()},
        }
        if command["do"] in answers:
            return answers[command["do"]](command)
        match command["do"]:
            case "reset":
                self._llm.reset_prefix_cache(reset_connector=True)
            case "reset-device":
                self._llm.reset_prefix_cache()
            case "stick":
                self._stuck.clear()
            case "unstick":
                self._stuck.set()
                time.sleep(0.5)  # the threads come out of the drive
        return {}

    def stop(self) -> None:
        self._llm.llm_engine.engine_core.shutdown()

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        from vllm import SamplingParams

        tokens = self._llm.get_tokenizer().encode(command["text"])[: command["length"]]
        assert len(tokens) == command["length"], f"the text has {len(tokens)} tokens"
        prompt = {"prompt_token_ids": tokens}
        if command.get("salt"):
            prompt["cache_salt"] = command["salt"]
        wanted = SamplingParams(
            temperature=0.0,
            max_tokens=command.get("tokens", 8),
            logprobs=5,
            ignore_eos=True,
            extra_args={"kv_transfer_params": command.get("params")},
        )
        began_s = time.perf_counter()
        [output] = self._llm.generate([prompt], wanted, use_tqdm=False)
        answer = output.outputs[0]
        return {
            "tokens": list(answer.token_ids),
            "logprobs": [
                {str(token): one.logprob for token, one in step.items()} for step in answer.logprobs
            ],
            "cached": output.num_cached_tokens,
            "total_s": time.perf_counter() - began_s,
            "first_s": output.metrics.first_token_latency if output.metrics else None,
        }

    def _many(self, command: dict[str, Any]) -> dict[str, Any]:
        from vllm import SamplingParams

        wanted = SamplingParams(
            temperature=0.0, max_tokens=command["tokens"], ignore_eos=True, detokenize=False
        )
        prompts = [{"prompt_token_ids": tokens} for tokens in command["prompts"]]
        answers = [
            {"tokens": list(one.outputs[0].token_ids), "cached": one.num_cached_tokens}
            for one in self._llm.generate(prompts, wanted, use_tqdm=False)
        ]
        return {"answers": answers}

    def _events(self) -> list[dict[str, Any]]:
        told, self._told[:] = list(self._told), []
        return told

    def _metrics(self) -> dict[str, float]:
        """What vLLM's /metrics shows, without its labels for engine and model."""
        from prometheus_client import REGISTRY

        found: dict[str, float] = {}
        for sample in (sample for family in REGISTRY.collect() for sample in family.samples):
            labels = {k: v for k, v in sample.labels.items() if k in ("tier", "reason", "verdict")}
            name = sample.name + "".join(f",{k}={v}" for k, v in sorted(labels.items()))
            found[name] = found.get(name, 0) + sample.value
        return found


def _connectors(plan: dict[str, Any]) -> dict[str, Any]:
    """The connector's configuration, or that of two."""
    both = {"kv_role": "kv_both", "kv_load_failure_policy": "recompute"}
    offloading = {
        "kv_connector": "OffloadingConnector",
        **both,
        "kv_connector_extra_config": {
            "spec_name": "CpuTieringSpec",
            "spec_module_path": "cpu_tiering",
            "cpu_bytes_to_use": plan["host_bytes"],
            "secondary_tiers": plan["tiers"],
            **plan.get("host", {}),
        },
    }
    if "beside" not in plan:
        return offloading
    children = [{**both, **plan["beside"]}, offloading]
    extra = {"connectors": children}
    return {"kv_connector": "MultiConnector", **both, "kv_connector_extra_config": extra}


if __name__ == "__main__":
    main()
