"""The process that is killed: forks one workload an order, each to die at its own operation.

Reads orders from standard input, a JSON object a line, and answers each with how the fork
ended. What the workload was promised is appended to a journal before it goes on.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import asdict
from functools import partial
from pathlib import Path

from pagoda.core.identity import Key
from pagoda.lab.crash.ledger import Act, Event, Placed
from pagoda.lab.crash.tap import Kill, Killer, Moment, TappedFile
from pagoda.lab.crash.workload import Plan, Workload


def order_line(plan: Plan, kill: Kill, journal: Path) -> str:
    """An order, as one line of JSON."""
    fields = asdict(plan) | {"directory": str(plan.directory)}
    return json.dumps({"plan": fields, "kill": asdict(kill), "journal": str(journal)}) + "\n"


def read_journal(path: Path) -> list[Event]:
    """What a killed workload had been promised; a last line that was cut counts as unsaid."""
    lines = path.read_text(encoding="ascii").splitlines(keepends=True)
    return [_event(json.loads(line)) for line in lines if line.endswith("\n")]


def _event(fields: dict[str, object]) -> Event:
    blocks = fields["blocks"]
    slots = fields["slots"]
    assert isinstance(blocks, list), "blocks are a list"
    assert isinstance(slots, list), "slots are a list"
    return Event(
        act=Act(str(fields["act"])),
        at=int(str(fields["at"])),
        slots=tuple(slots),
        blocks=tuple(Placed(slot, Key(bytes.fromhex(key)), v) for slot, key, v in blocks),
    )


def _line(event: Event) -> bytes:
    blocks = [[block.slot, block.key.hex(), block.version] for block in event.blocks]
    fields = {"act": event.act, "at": event.at, "slots": event.slots, "blocks": blocks}
    return json.dumps(fields).encode("ascii") + b"\n"


def _carry_out(order: dict[str, dict[str, object]], journal: Path) -> None:
    """In the fork: work until the kill."""
    kill = Killer(Kill(**order["kill"] | {"moment": Moment(order["kill"]["moment"])}))  # type: ignore[arg-type]
    plan = Plan(**order["plan"] | {"directory": Path(str(order["plan"]["directory"]))})  # type: ignore[arg-type]
    fd = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(event: Event) -> None:
        os.write(fd, _line(event))

    opener = partial(TappedFile, tap=kill)
    Workload(plan, opener=opener, tell=tell, position=kill.position).run()


def main() -> None:
    """Serve orders until standard input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                _carry_out(order, Path(order["journal"]))
            except BaseException:  # noqa: BLE001 - the fork must not return into this loop
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
