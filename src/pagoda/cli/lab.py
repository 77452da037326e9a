"""`pagoda lab`: break the cache on purpose, in many ways, and see that it never lies.

One file a command: each has a function that Typer can read.
"""

from __future__ import annotations

import typer

from pagoda.cli import lab_crash, lab_defects, lab_incident, lab_sim
from pagoda.cli.bench_output import OptionalJson

app = typer.Typer(name="lab", no_args_is_help=True)


@app.callback()
def lab() -> None:
    """Break the cache on purpose, in many ways, and see that it never lies."""


app.command("sim", cls=OptionalJson)(lab_sim.command)
app.command("defects", cls=OptionalJson)(lab_defects.command)
app.command("crash", cls=OptionalJson)(lab_crash.command)
app.command("incident", cls=OptionalJson)(lab_incident.command)
