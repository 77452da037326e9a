"""`pagoda chat`: talk to a model in the terminal."""

from __future__ import annotations

import json
import sys
import time
import unicodedata
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Protocol

import typer

from pagoda.cli.answers import Counts, EngineSource, Message, Options, ServerSource, Source
from pagoda.cli.flags import takes_settings
from pagoda.cli.server import api_key_of, server_url
from pagoda.core.errors import PagodaError
from pagoda.lab.progress import Step, terminal
from pagoda.settings import Rank, Resolved


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One whole answer with its times; `stopped` when Ctrl-C cut it short."""

    text: str
    first_token_s: float | None
    total_s: float
    counts: Counts | None
    stopped: bool = False

    def summary(self) -> str:
        """The line below an answer: time to first token, speed, cached tokens."""
        parts = ["stopped"] if self.stopped else []
        if self.first_token_s is not None:
            parts.append(f"first token {self.first_token_s:.2f} s")
        if self.counts is not None:
            parts += self._counted(self.counts)
        return " · ".join(parts)

    def _counted(self, counts: Counts) -> Iterator[str]:
        yield f"{counts.completion_tokens} tokens"
        if self.first_token_s is not None and counts.completion_tokens > 1:
            decode_s = max(self.total_s - self.first_token_s, 1e-9)
            yield f"{(counts.completion_tokens - 1) / decode_s:.0f} tokens/s"
        if counts.cached_tokens is not None:
            yield f"{counts.cached_tokens} of {counts.prompt_tokens} prompt tokens cached"


class Screen(Protocol):
    """Where a conversation happens."""

    def lines(self) -> Iterator[str]:
        """The questions, until there are no more."""
        ...

    def piece(self, text: str) -> None:
        """A piece of an answer."""
        ...

    def end(self, answer: Answer) -> None:
        """An answer is complete."""
        ...

    def failed(self, error: PagodaError) -> None:
        """A question was not answered; raises to end the conversation."""
        ...


class Terminal:
    """A person at a terminal."""

    def lines(self) -> Iterator[str]:
        """Lines with editing and history; Ctrl-C drops the line, Ctrl-D leaves."""
        with suppress(ImportError):  # some Pythons are built without
            import readline  # noqa: F401, PLC0415 - gives input() editing and history

        while True:
            try:
                line = input("> ")
            except KeyboardInterrupt:
                print("\n(Ctrl-D leaves)")
                continue
            except EOFError:
                print()
                return
            yield line

    def piece(self, text: str) -> None:
        """Text at once, without what could steer the terminal."""
        typer.echo(printable(text), nl=False)

    def end(self, answer: Answer) -> None:
        """The summary, dimmed."""
        typer.secho(f"\n{answer.summary()}\n", dim=True)

    def failed(self, error: PagodaError) -> None:
        """Tell, and let the person try again."""
        typer.secho(f"{error}\n", fg="red", err=True)


class Pipe:
    """A program, or a file: a line is a question, summaries go to standard error."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def lines(self) -> Iterator[str]:
        """Lines of standard input."""
        for line in sys.stdin:
            yield line.removesuffix("\n")

    def piece(self, text: str) -> None:
        """Text as it came; nothing yet in JSON."""
        if not self._as_json:
            typer.echo(text, nl=False)

    def end(self, answer: Answer) -> None:
        """The summary, or the answer as one line of JSON."""
        if self._as_json:
            typer.echo(json.dumps(asdict(answer)))
            return
        typer.echo()
        typer.echo(answer.summary(), err=True)

    def failed(self, error: PagodaError) -> None:
        """Nobody is there to try again."""
        raise error


def printable(text: str) -> str:
    """`text` without control characters other than line ends and tabs: a model's output must
    not move the cursor, ring, or retitle the window."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def converse(source: Source, screen: Screen, *, system: str = "") -> None:
    """Ask each line of `screen`, with all that was said before."""
    said: list[Message] = [{"role": "system", "content": system}] if system else []
    for line in screen.lines():
        if not line.strip():
            continue
        question = {"role": "user", "content": line}
        try:
            answer = ask(source, [*said, question], screen)
        except PagodaError as error:
            screen.failed(error)
            continue
        screen.end(answer)
        # Half an answer stays: "go on" then means something. An empty one would break templates
        # that want the roles to take turns.
        if answer.text:
            said += [question, {"role": "assistant", "content": answer.text}]


def ask(source: Source, messages: list[Message], screen: Screen) -> Answer:
    """One question: its answer goes to `screen` as it comes; Ctrl-C stops it."""
    start = time.perf_counter()
    first_token_s: float | None = None
    texts: list[str] = []
    counts: Counts | None = None
    stopped = False
    with closing(source.stream(messages)) as pieces:
        try:
            for piece in pieces:
                if isinstance(piece, Counts):
                    counts = piece
                    continue
                if first_token_s is None:
                    first_token_s = time.perf_counter() - start
                texts.append(piece)
                screen.piece(piece)
        except KeyboardInterrupt:
            stopped = True
    return Answer(
        text="".join(texts),
        first_token_s=first_token_s,
        total_s=time.perf_counter() - start,
        counts=counts,
        stopped=stopped,
    )


@takes_settings("model", "engine", "host", "drive", "remote", "store")
def command(  # noqa: PLR0913 - a command's parameters are its flags
    resolved: Resolved,
    *,
    url: Annotated[
        str | None, typer.Option(help="Server to talk to; else the one that settings describe.")
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with the server's key; else PAGODA_API_KEY.")
    ] = None,
    system: Annotated[str, typer.Option(help="Instructions that come first.")] = "",
    temperature: Annotated[
        float | None,
        typer.Option(min=0, help="0 is greedy. [default: 0; with --url the server's own]"),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Questions from standard input, a JSON line an answer.")
    ] = False,
) -> None:
    """Talk to a model in the terminal.

    With --model DIR the engine runs in this process; otherwise any OpenAI-compatible server
    answers. Ctrl-C stops an answer, Ctrl-D leaves. Without a terminal, each line of standard
    input is a question.
    """
    if temperature is None and url is None:
        temperature = 0.0  # small models wander above, and the same answer twice shows the cache
    options = Options(temperature=temperature, max_tokens=max_tokens)
    settings = resolved.settings
    source: Source
    if url is None and resolved.origins["model.path"].rank is Rank.FLAG:
        from pagoda.serve.compose import open_engine  # noqa: PLC0415 - brings torch

        with terminal() as tell:
            tell(Step(f"loading {settings.model.path}"))
            source = EngineSource(open_engine(settings), options=options)
    else:
        key = api_key_of(api_key_file)
        if url is None:  # our own server: its settings tell the key
            url, key = (
                server_url(settings.server),
                key or settings.server.api_key.get_secret_value(),
            )
        source = ServerSource(url, model=settings.model.name or None, api_key=key, options=options)
    with closing(source):
        _run(source, as_json=as_json, system=system)


def _run(source: Source, *, as_json: bool, system: str) -> None:
    who = source.connect()
    if sys.stdin.isatty() and not as_json:
        typer.secho(f"{who}. Ctrl-C stops an answer, Ctrl-D leaves.\n", dim=True)
        converse(source, Terminal(), system=system)
    else:
        converse(source, Pipe(as_json=as_json), system=system)
