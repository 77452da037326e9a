"""Stand-ins that let the real SGLang 0.5.23 be imported on a machine without a GPU.

There is no CPU build of its kernels. What is missing is triton (SGLang ships a mock of it, which
it uses on Macs only), the compiled half of torchvision, and `sgl_kernel`, whose functions all
raise here. Nothing of SGLang's own behaviour is changed; copies.py does what little there is.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_PACKAGES = Path(sysconfig.get_paths()["purelib"])
_KEPT: list[Any] = []  # a library of operators ends with its object


def install() -> None:
    """Put the stand-ins in place. To be called before torchvision or SGLang is imported."""
    if importlib.util.find_spec("triton") is None:
        _mock_triton()
    _compile_nothing()
    _declare_torchvision()
    sys.meta_path.insert(0, _Finder())


def _mock_triton() -> None:
    importlib.import_module("torch.utils.flop_counter")  # with a mock of triton it does not load
    where = _PACKAGES / "sglang" / "_platform_stubs.py"
    spec = importlib.util.spec_from_file_location("sglang_platform_stubs", where)
    assert spec is not None
    assert spec.loader is not None
    stubs: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = stubs  # its dataclasses look themselves up
    spec.loader.exec_module(stubs)
    sys.meta_path.insert(0, stubs._TritonFinder())
    triton = stubs._make_mock("triton")
    triton.__version__ = "3.0.0"
    triton.cdiv, triton.next_power_of_2 = stubs._cdiv, stubs._next_power_of_2
    triton.Config = stubs._Config


def _compile_nothing() -> None:
    """Run what SGLang marks for torch's compiler as it stands: the compiler wants a triton."""
    import torch

    def as_it_stands(model: Any = None, **more: Any) -> Any:
        return as_it_stands if model is None else model

    torch.compile = as_it_stands


def _declare_torchvision() -> None:
    """Declare the operators that torchvision registers shapes for: its library needs CUDA."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    source = (_PACKAGES / "torchvision" / "_meta_registrations.py").read_text()
    found = re.findall(r'register_(?:fake|meta)\("(?:torchvision::)?(\w+)"', source)
    for name in dict.fromkeys(found):
        library.define(f"{name}(Tensor x) -> Tensor")
    _KEPT.append(library)


class _Kernels(types.ModuleType):
    """`sgl_kernel` or a module of it: whatever is asked for is a function that raises."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*args: Any, **more: Any) -> Any:
            raise NotImplementedError(f"{self.__name__}.{name} runs on GPUs only")

        absent.__name__ = name
        return absent


class _Names:
    """The kinds of numbers of quantized weights: each is its own name."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Finder:
    """Finds `sgl_kernel` and all below it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "sgl_kernel":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module: Any = _Kernels(spec.name)
        module.__path__ = []
        module.__version__ = "0.0.0"
        if spec.name == "sgl_kernel.scalar_type":
            module.ScalarType, module.scalar_types = str, _Names()
        return module  # type: ignore[no-any-return]

    def exec_module(self, module: types.ModuleType) -> None:
        """A stand-in has no code to run."""
