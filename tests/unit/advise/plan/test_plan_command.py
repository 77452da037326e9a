"""`pagoda plan` from the command line: shapes for machines, tables, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pagoda.cli.main import app

KV = ["plan", "kv", "--kv-dtype", "bf16", "--max-model-len", "8192", "--available-gib"]
MODEL = ["plan", "llama-3.1-8b", "--gpu", "h100", "--max-model-len", "8192"]


def _run(*args: str):
    return CliRunner().invoke(app, list(args), env={"COLUMNS": "160"})


def _json(*args: str) -> dict:
    done = _run(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_kv_prints_the_documented_shape() -> None:
    """The five keys of the documented shape are there, with the right types and numbers."""
    found = _json(*KV, "40", "--layers", "80", "--kv-heads", "8", "--head-dim", "128", "--tp", "8")
    assert found["bytes_per_token_per_rank"] == 40_960
    assert found["tokens"] == 40 * 2**30 // 40_960 // 16 * 16
    assert found["blocks"] * 16 == found["tokens"]
    assert found["concurrency"] == pytest.approx(found["tokens"] / 8192, abs=1e-4)
    assert any("no scales a token" in note for note in found["assumptions"])


def test_the_guides_example_is_true() -> None:
    """The command and the JSON of docs/guides/plan.md belong together."""
    guide = Path(__file__).resolve().parents[4] / "docs" / "guides" / "plan.md"
    text = guide.read_text(encoding="utf-8")
    command = text.split("```\n", 1)[1].split("```", 1)[0].replace("\\\n", " ").split()
    printed = json.loads(text.split("```json\n", 1)[1].split("```", 1)[0])
    found = json.loads(_run(*command[1:]).stdout)
    assert {key: found[key] for key in printed if key != "assumptions"} == {
        key: value for key, value in printed.items() if key != "assumptions"
    }


def test_kv_takes_latents_windows_and_stages() -> None:
    """MLA, sliding layers and pipeline stages are flags, and their effects are listed."""
    mla = _json(*KV, "8", "--layers", "61", "--mla-latent", "576", "--tp", "8")
    assert mla["bytes_per_token_per_rank"] == 70_272
    assert any("whole latent" in note for note in mla["assumptions"])
    geometry = ("--layers", "26", "--kv-heads", "1", "--head-dim", "256")
    window = ("--sliding-window", "512", "--sliding-layers", "22")
    mixed = _json(*KV, "25.39", *geometry, *window)
    assert mixed["bytes_per_token_per_rank"] == 28_672
    uneven = _json(*KV, "8", *geometry, "--pp", "3")
    assert any("the fullest" in note for note in uneven["assumptions"])
    copied = _json(*KV, "8", *geometry, "--tp", "4")
    assert any("replicated 4 times" in note for note in copied["assumptions"])


def test_a_pool_below_one_request_is_warned_of() -> None:
    """An engine would refuse to start: the warning has the sizes, for people and programs."""
    geometry = ("--layers", "80", "--kv-heads", "8", "--head-dim", "128")
    small, enough = _run(*KV, "2", *geometry), _run(*KV, "3", *geometry)
    assert small.exit_code == 0
    assert "warning: not one request of 8,192 tokens fits: it takes 2.50 GiB" in small.stderr
    assert "not one request" not in enough.output
    assert _json(*KV, "2", *geometry)["assumptions"][0].startswith("not one request")


def test_kv_explains_in_words() -> None:
    """Without --json a table is printed, with --explain the formula too."""
    done = _run(*KV, "8", "--layers", "2", "--kv-heads", "2", "--head-dim", "64", "--explain")
    assert done.exit_code == 0
    assert "blocks = available // block bytes" in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((*KV, "8", "--layers", "2"), "--kv-heads"),
        (
            (*KV, "8", "--layers", "2", "--mla-latent", "8", "--sliding-layers", "1"),
            "--sliding-window",
        ),
        ((*KV, "8", "--layers", "2", "--mla-latent", "8", "--allocator", "x"), "vllm, uniform"),
        (
            (*KV, "8", "--layers", "9", "--kv-heads", "8", "--head-dim", "128", "--tp", "3"),
            "one of 1",
        ),
        (("plan", "no-such-model", "--gpu", "h100"), "config.json"),
        ((*MODEL, "--tp", "3"), "tensor parallelism 3"),
        ((*MODEL, "--tp", "4", "--gpus", "2"), "4 GPUs, not 2"),
        ((*MODEL, "--pcie", "4x3"), "does not exist"),
        ((*MODEL, "--drive-pcie", "fast"), "write 4x16"),
        ((*MODEL, "--link-efficiency", "2"), "(0, 1]"),
        ((*MODEL, "--gpu", "h1000"), "one of"),
        ((*MODEL, "--plot", "curve.pdf"), ".svg"),
        ((*MODEL, "--trace", "nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_mistakes_are_told_with_a_remedy(args: tuple[str, ...], says: str) -> None:
    """A mistake exits with status 2 and says what to do."""
    done = _run(*args)
    assert done.exit_code == 2
    assert says in done.output


def test_without_a_gpu_it_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a host without nvidia-smi the flags and the list of known GPUs are in the error."""
    monkeypatch.setenv("PATH", "")
    done = _run("plan", "llama-3.1-8b")
    assert done.exit_code == 2
    assert "--gpu h100 --gpus 8" in done.output
    assert "pagoda plan catalogue" in done.output


def test_a_model_prints_the_same_keys_and_more() -> None:
    """`plan MODEL --json` has kv's keys, then the rest of the plan."""
    tiers = ("--host-gib", "200", "--drives", "2", "--network-gbit", "100")
    found = _json(*MODEL, "--gpus", "2", *tiers)
    assert {"bytes_per_token_per_rank", "tokens", "blocks", "concurrency", "assumptions"} <= set(
        found
    )
    assert found["fits"] is True
    assert set(found["ttft_ms"]) == {"device", "host", "drive", "remote", "nowhere"}
    assert set(found["flags"]) == {"vllm", "sglang"}
    assert found["scaling"]["knee_gpus"] in {1, 2, 4, 8}
    assert {f["name"] for f in found["figures"]} >= {"throughput", "alpha_comm", "beta_kv_miss"}


def test_a_plan_is_a_table_for_people(tmp_path: Path) -> None:
    """Without --json: verdict, tables, engine, flags; --explain adds formulas; --plot a curve."""
    curve = tmp_path / "curve.svg"
    done = _run(*MODEL, "--host-gib", "100", "--explain", "--plot", str(curve))
    assert done.exit_code == 0, done.output
    for words in ("fits", "Scheduler target", "Assumptions", "vllm serve", "formula"):
        assert words in done.stdout
    assert curve.read_text(encoding="utf-8").startswith("<svg")


def test_what_does_not_fit_is_said_first() -> None:
    """A model too large is told in the first line, with the missing GiB."""
    done = _run("plan", "llama-3.1-70b", "--gpu", "rtx-4090")
    assert done.exit_code == 0
    assert "does not fit" in done.stdout.splitlines()[0]


def test_links_and_efficiencies_are_settings() -> None:
    """A narrower link makes restores slower, better kernels make tokens faster."""

    def figures(*flags: str) -> dict[str, float]:
        found = _json(*MODEL, "--host-gib", "64", *flags)
        return {figure["name"]: figure["value"] for figure in found["figures"]}

    usual, narrow, better = (
        figures(),
        figures("--pcie", "4x4"),
        figures("--compute-efficiency", "1"),
    )
    assert narrow["host_restore"] > 4 * usual["host_restore"]
    assert better["throughput"] > usual["throughput"]


def test_named_ranks_leave_the_rest_to_replicas() -> None:
    """With --tp and --gpus, replicas fill the GPUs."""
    assert _json(*MODEL, "--tp", "2", "--gpus", "8")["parallel"] == {"tp": 2, "pp": 1, "dp": 4}


def test_own_gpus_can_be_described() -> None:
    """A GPU that is not in the catalogue is described by three flags."""
    own = ("--gpu-memory-gib", "48", "--gpu-bandwidth-gb-s", "900", "--gpu-tflops", "200")
    found = _json("plan", "qwen3-8b", *own)
    assert found["fits"] is True
    assert found["gpu"] == "own"


def test_a_directory_is_a_model(tmp_path: Path) -> None:
    """A directory with a config.json is planned for; flags fill in what it does not say."""
    config = {
        "architectures": ["FalconForCausalLM"],
        "model_type": "falcon",
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "multi_query": True,
        "max_position_embeddings": 2048,
        "torch_dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    refused = _run("plan", str(tmp_path), "--gpu", "l4")
    assert refused.exit_code == 2
    assert "--params-b" in refused.output
    found = _json("plan", str(tmp_path), "--gpu", "l4", "--params-b", "7.2")
    assert found["bytes_per_token_per_rank"] == 8192


def test_catalogue_and_claims_are_printed() -> None:
    """The built-in facts are listed with their sources, the checked claims as Markdown."""
    assert "meta-llama/Llama-3.3-70B-Instruct" in _run("plan", "catalogue").stdout
    assert _run("plan", "claims").stdout.startswith("# Claims checked")


def test_planning_needs_no_torch() -> None:
    """The command works in an installation without torch, transformers or matplotlib."""
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'matplotlib'): sys.modules[name] = None\n"
        "from typer.testing import CliRunner\n"
        "from pagoda.cli.main import app\n"
        "done = CliRunner().invoke(app, ['plan', 'qwen3-8b', '--gpu', 'h100', '--json'])\n"
        "assert done.exit_code == 0, done.output\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
