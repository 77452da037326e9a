"""Reads a compose file: its services, as far as a KV cache cares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from pagoda.advise.preflight.spec import Spec, size_of
from pagoda.machine.limits import UNLIMITED

__all__ = ["NotCompose", "compose_specs"]

TEXT_LIMIT_CHARS = 1 << 20


class NotCompose(ValueError):
    """The text is no compose file; the message says what it is."""


def compose_specs(text: str) -> list[Spec]:
    """Every service of a compose file; raises NotCompose for any other text."""
    try:
        root = yaml.safe_load(text[:TEXT_LIMIT_CHARS])
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise NotCompose("it is not YAML that can be read") from error
    if isinstance(root, Mapping) and "apiVersion" in root:
        raise NotCompose("it is a Kubernetes manifest, not a compose file")
    services = root.get("services") if isinstance(root, Mapping) else None
    bodies = services.items() if isinstance(services, Mapping) else ()
    specs = [_spec(str(name), body) for name, body in bodies if isinstance(body, Mapping)]
    if not specs:
        raise NotCompose("it has no services")
    return specs


def _spec(name: str, body: Mapping[Any, Any]) -> Spec:
    devices = _devices(body)
    environment = _environment(body.get("environment"))
    ids = [str(each) for device in devices for each in _list(device.get("device_ids"))]
    if ids:
        environment.setdefault("CUDA_VISIBLE_DEVICES", ",".join(ids))
    image = body.get("image")
    return Spec(
        name=name,
        image=str(image) if image is not None else None,
        environment=environment,
        run=" ".join(f"{body.get(key) or ''}" for key in ("command", "entrypoint")),
        memlock_bytes=UNLIMITED if _may_lock(body) else _memlock(body.get("ulimits")),
        shm_bytes=size_of(body["shm_size"]) if "shm_size" in body else None,
        host_ipc=body.get("ipc") == "host",
        wants_gpu=bool(devices) or body.get("runtime") == "nvidia" or "gpus" in body,
    )


def _may_lock(body: Mapping[Any, Any]) -> bool:
    """CAP_IPC_LOCK lifts the limit, and privileged containers have it."""
    added = {str(each).upper().removeprefix("CAP_") for each in _list(body.get("cap_add"))}
    return body.get("privileged") is True or bool(added & {"IPC_LOCK", "ALL"})


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _inside(value: object, *path: str) -> object:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _devices(body: Mapping[Any, Any]) -> list[Mapping[Any, Any]]:
    found = _list(_inside(body, "deploy", "resources", "reservations", "devices"))
    return [each for each in found if isinstance(each, Mapping)]


def _environment(value: object) -> dict[str, str]:
    """Both forms: a mapping, and a list of NAME=VALUE."""
    if isinstance(value, Mapping):
        return {str(name): "" if text is None else str(text) for name, text in value.items()}
    pairs = (str(each).partition("=") for each in _list(value))
    return {name: text for name, mark, text in pairs if mark}


def _memlock(ulimits: object) -> int | None:
    value = _inside(ulimits, "memlock")
    if isinstance(value, Mapping):
        value = value.get("soft")
    try:
        limit = int(str(value))
    except ValueError:
        return None
    return UNLIMITED if limit < 0 else limit
