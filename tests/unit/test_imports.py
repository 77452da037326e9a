"""What Pagoda imports: nothing of torch in the base package, no model classes anywhere.

The layers themselves are held by import-linter (`make check`).
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pagoda

SOURCE = Path(pagoda.__file__).parent
ENGINE_EXTRA = ("torch", "transformers", "safetensors", "tokenizers", "jinja2")
# Modules that put the parts together, or turn tensors into bytes.
NEEDS_TORCH = ("pagoda.serve.compose", "pagoda.tiers.device")
TOKENIZER_NAMES = {"AutoConfig", "AutoTokenizer", "PreTrainedTokenizerFast"}
MODEL_CLASS_USERS = {
    SOURCE / "lab" / "convert_gguf.py",  # a script that is run by path, in its own process
    SOURCE / "lab" / "bench" / "transformers_peer.py",  # what the engine's bench compares with
}

IMPORT_ALL = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Absent())
package = importlib.import_module({package!r})
for found in pkgutil.walk_packages(getattr(package, "__path__", []), package.__name__ + "."):
    if found.name not in {excepted!r}:
        importlib.import_module(found.name)
print("imported")
"""


def import_without_engine(package: str) -> subprocess.CompletedProcess[str]:
    """Import a package and its modules, NEEDS_TORCH apart, in a process without [engine]."""
    code = IMPORT_ALL.format(absent=ENGINE_EXTRA, package=package, excepted=NEEDS_TORCH)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    "package",
    [
        "pagoda.advise",
        "pagoda.cli",
        "pagoda.core",
        "pagoda.engine.api",
        "pagoda.lab.model",
        "pagoda.machine",
        "pagoda.seal",
        "pagoda.serve",
        "pagoda.settings",
        "pagoda.store",
        "pagoda.testing",
        "pagoda.tiers",
        "pagoda.verify",
        "pagoda.watch",
    ],
)
def test_a_package_and_its_modules_import_without_the_engine_extra(package):
    """`pip install pagoda-kv` alone brings everything but the engine to life."""
    done = import_without_engine(package)
    assert done.stdout == "imported\n", done.stderr


def test_the_package_itself_imports_nothing_but_its_version():
    """`import pagoda` costs nothing: no third-party module is loaded."""
    code = "import sys, pagoda; print(sorted(m for m in sys.modules if m.startswith('pagoda')))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "['pagoda', 'pagoda._version']\n"


def test_the_blocker_blocks():
    """The check above can fail: the engine's model does need torch."""
    done = import_without_engine("pagoda.engine.model")
    assert done.returncode != 0
    assert "No module named 'torch" in done.stderr


def transformers_names(path: Path) -> set[str]:
    """All that a file takes from transformers; a whole module counts as its dotted name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if node.module == "transformers":
                names |= {alias.name for alias in node.names}
            elif node.module.startswith("transformers."):
                names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {a.name for a in node.names if a.name.partition(".")[0] == "transformers"}
    return names


def test_only_tokenizer_and_configuration_are_taken_from_transformers():
    """Model classes of transformers would make our runner's exactness a tautology."""
    taken = {
        str(path.relative_to(SOURCE)): names
        for path in SOURCE.rglob("*.py")
        if path not in MODEL_CLASS_USERS and (names := transformers_names(path) - TOKENIZER_NAMES)
    }
    assert taken == {}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("from transformers import LlamaForCausalLM as L, AutoTokenizer", {"LlamaForCausalLM"}),
        ("from transformers.models.llama import modeling_llama", {"transformers.models.llama"}),
        ("def f():\n    import transformers", {"transformers"}),
        ("from .transformers import Block", set()),
    ],
)
def test_every_way_to_take_a_model_class_is_seen(tmp_path, line, expected):
    """Aliases, submodules, whole modules and late imports count; our own modules do not."""
    path = tmp_path / "module.py"
    path.write_text(line)
    assert transformers_names(path) - TOKENIZER_NAMES == expected
