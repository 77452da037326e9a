"""From settings to a running engine."""

from __future__ import annotations

import json
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

from pagoda.core.errors import CapacityError, SettingsError
from pagoda.core.events import Observer, ignore
from pagoda.core.identity import Namespace
from pagoda.engine import llm
from pagoda.engine.codec import load_codec
from pagoda.engine.home import HomeThread
from pagoda.engine.layout import BlockLayout
from pagoda.engine.runner import Runner
from pagoda.engine.scheduler import Limits
from pagoda.engine.weights import LoadedModel, load_model
from pagoda.machine.heap import trim_heap
from pagoda.settings.storage import check_plan, pin_limits, store_plan
from pagoda.settings.tree import Settings, user_directory
from pagoda.store.catalogue import Catalogue
from pagoda.store.checks import CheckPlan
from pagoda.store.executor import Runtime, ThreadExecutor
from pagoda.store.fingerprint import Fingerprint, weights_fingerprint
from pagoda.store.open import StorePlan, open_store
from pagoda.store.pins import PinPlan
from pagoda.store.pins_file import PinsFile
from pagoda.store.store import Store
from pagoda.watch.tell import telling

_log = logging.getLogger("pagoda.serve")
_STORE_THREADS = 1  # each tier writes one run at a time


def open_engine(settings: Settings, observer: Observer = ignore) -> llm.LlmEngine:
    """Load the model, open the tiers and start the engine; the caller closes it.

    Raises SettingsError, ModelError and TierError, each naming what and the remedy.
    """
    if not settings.model.path:
        raise SettingsError(
            "no model is named",
            key="model.path",
            source="settings",
            remedy="give --model DIR, a local Hugging Face model directory",
        )
    home = HomeThread("pagoda-engine")
    told = telling(observer)
    try:
        return llm.LlmEngine(home.run(lambda: _assemble(settings, told)).result(), home)
    except BaseException:
        home.close()
        raise


def _assemble(settings: Settings, observer: Observer) -> llm.Parts:
    """In the engine's thread."""
    directory = Path(settings.model.path).expanduser()
    with ThreadPoolExecutor() as pool:  # importing a tokenizer library takes as long as weights do
        codec = pool.submit(load_codec, directory)
        weights = pool.submit(_fingerprint, settings, directory)
        model = load_model(directory, dtype=settings.model.dtype)
        runner = _runner(settings, model)
    weights.result().confirm()
    namespace = _namespace(model, runner, weights.result().digest)
    wake = threading.Event()
    executor = ThreadExecutor(load_threads=settings.drive.io_threads, store_threads=_STORE_THREADS)
    runtime = Runtime(executor=executor, observer=observer, wake=wake.set)
    plan = store_plan(
        settings,
        block_bytes=runner.block_bytes,
        device_blocks=runner.num_blocks,
        check=_check(settings, runner),
    )
    store, catalogue, pins = _open(plan, runtime)
    parts = llm.Parts(
        runner=runner,
        codec=codec.result(),
        store=store,
        catalogue=catalogue,
        pins=PinPlan(limits=pin_limits(settings.pins), file=pins),
        namespace=namespace,
        card=llm.card_of(
            name=settings.model.served_name,
            runner=runner,
            context_tokens=settings.engine.context_tokens or model.config.max_position,
            vocab_size=model.config.vocab_size,
        ),
        limits=Limits(
            max_sequences=settings.engine.max_sequences,
            chunk_tokens=settings.engine.chunk_tokens,
        ),
        wake=wake,
        policy=settings.engine.policy,
        observer=observer,
    )
    trim_heap()
    return parts


def _check(settings: Settings, runner: Runner) -> CheckPlan | None:
    """Other nodes of a shared store may have other processors, whose last bits differ."""
    exact = runner.form.exact and not settings.remote.url
    form = replace(runner.form, exact=exact)
    return check_plan(settings.check, form=form, block_tokens=runner.block_tokens)


def _open(plan: StorePlan, runtime: Runtime) -> tuple[Store, Catalogue, PinsFile]:
    """The store, what is known of the namespaces in it, and what was pinned of them."""
    store = open_store(plan, runtime)
    directories = [drive.directory for drive in plan.drives]
    try:
        return store, Catalogue(directories), PinsFile(directories)
    except BaseException:
        store.close(flush_s=0.0)  # a failed start leaves no directory locked
        raise


def _fingerprint(settings: Settings, directory: Path) -> Fingerprint:
    cache = user_directory("XDG_CACHE_HOME", ".cache", os.environ) / "pagoda" / "fingerprints"
    return weights_fingerprint(directory, mode=settings.model.fingerprint, fallback=cache)


def _runner(settings: Settings, model: LoadedModel) -> Runner:
    block_bytes = BlockLayout.of(model.config, model.dtype).block_bytes
    blocks = settings.engine.kv_memory // block_bytes
    if blocks < 2:
        raise CapacityError(
            f"engine.kv_memory of {settings.engine.kv_memory} bytes holds fewer than two blocks "
            f"of {block_bytes}",
            tier="device",
            asked_bytes=2 * block_bytes,
            limit_bytes=settings.engine.kv_memory,
            remedy="raise engine.kv_memory",
        )
    native = {"auto": None, "on": True, "off": False}[settings.engine.native]
    runner = Runner(
        model, num_blocks=blocks, native=native, threads=settings.engine.threads or None
    )
    runner.warm_up()
    _log.info(
        "%d blocks of %d tokens, %s, kernels: %s",
        blocks,
        runner.block_tokens,
        str(model.dtype).removeprefix("torch."),
        runner.kernel_id,
    )
    if native is None and runner.kernel_id == "torch":
        _log.warning(
            "the C kernels were not built, so attention runs on torch, slower: "
            "install a C compiler and install pagoda-kv again"
        )
    return runner


def _namespace(model: LoadedModel, runner: Runner, weights: bytes) -> Namespace:
    config = model.config
    return Namespace(
        weights=weights,
        # What computes counts as well: only equal arithmetic restores to equal bits.
        config=json.dumps({"model": asdict(config), "kernels": runner.arithmetic}, sort_keys=True),
        layout=runner.layout_id,
        dtype=str(model.dtype).removeprefix("torch."),
        scales="none",
        layers=config.layers,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        block_tokens=runner.block_tokens,
        tp_rank=0,
        tp_size=1,
        pp_rank=0,
        pp_size=1,
        rope=json.dumps(asdict(config.rope), sort_keys=True),
        adapter="",
        salt="",
    )
