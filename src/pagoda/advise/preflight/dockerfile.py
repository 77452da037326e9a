"""Reads a Dockerfile: the last stage, with what it inherits from earlier ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from pagoda.advise.preflight.spec import Spec

__all__ = ["dockerfile_spec"]

_FROM = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+as\s+(\S+))?\s*", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?[\"']?(\w+)[\"']?")


@dataclass
class _Stage:
    base: str
    name: str
    environment: dict[str, str] = field(default_factory=dict)
    run: list[str] = field(default_factory=list)


def dockerfile_spec(text: str) -> Spec | None:
    """The image that a Dockerfile builds; None when no stage begins in the text."""
    stages = _stages(_instructions(text))
    if not stages:
        return None
    chain = _chain(stages)
    environment: dict[str, str] = {}
    for stage in chain:
        environment |= stage.environment
    return Spec(
        name=chain[-1].name or "image",
        image=chain[0].base,
        environment=environment,
        run="\n".join(line for stage in chain for line in stage.run),
        can_limit=False,
        wants_gpu=True,
    )


def _instructions(text: str) -> list[tuple[str, str]]:
    """Keyword and argument of each instruction, continuations joined, comments dropped."""
    found: list[tuple[str, str]] = []
    waiting, until = "", ""
    for line in text.splitlines():
        bare = line.strip()
        if until:
            until = "" if bare == until else until
            continue
        if bare.startswith("#") or not bare:
            continue
        waiting += bare.removesuffix("\\") + " "
        if bare.endswith("\\"):
            continue
        keyword, _, rest = waiting.strip().partition(" ")
        heredoc = _HEREDOC.search(rest) if keyword.upper() in ("RUN", "COPY") else None
        until = heredoc[1] if heredoc is not None else ""
        found.append((keyword.upper(), rest.strip()))
        waiting = ""
    return found


def _stages(instructions: Sequence[tuple[str, str]]) -> list[_Stage]:
    stages: list[_Stage] = []
    defaults: dict[str, str] = {}
    for keyword, rest in instructions:
        if keyword == "ARG":
            name, _, value = rest.partition("=")
            defaults[name.strip()] = value.strip().strip("\"'")
        elif keyword == "FROM" and (hit := _FROM.fullmatch(rest)) is not None:
            stages.append(_Stage(_filled(hit[1], defaults), (hit[2] or "").lower()))
        elif stages and keyword == "ENV":
            stages[-1].environment |= _variables(_filled(rest, defaults))
        elif stages and keyword in ("RUN", "CMD", "ENTRYPOINT"):
            stages[-1].run.append(_filled(rest, defaults))
    return stages


def _filled(text: str, defaults: dict[str, str]) -> str:
    """Put the defaults of build arguments into a text."""
    return re.sub(
        r"\$\{?(\w+)(?::-[^}]{0,80})?\}?", lambda hit: defaults.get(hit[1]) or hit[0], text
    )


def _variables(text: str) -> dict[str, str]:
    """Both forms of ENV: pairs, and the old one of a name and the rest of the line."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    if words and "=" not in words[0]:
        return {words[0]: " ".join(words[1:])}
    pairs = (word.partition("=") for word in words)
    return {name: value for name, mark, value in pairs if mark and name}


def _chain(stages: Sequence[_Stage]) -> list[_Stage]:
    """The last stage and those it is built from, first one first."""
    chain = [stages[-1]]
    by_name = {stage.name: stage for stage in stages if stage.name}
    while (before := by_name.get(chain[0].base.lower())) is not None and before not in chain:
        chain.insert(0, before)
    return chain
