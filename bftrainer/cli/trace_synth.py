"""bftrainer trace synth"""

from __future__ import annotations

from pathlib import Path

import click

from bftrainer.cli.shared.progress import progress_bar
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import OutputPath, Positive
from bftrainer.model.text import counted

PROFILES = ("summit", "theta", "small")
"""The machines of `traces.synthetic.profiles`, which is imported only when one is generated."""


@click.command("synth")
@click.argument("out", type=OutputPath())
@click.option("--profile", type=click.Choice(PROFILES), required=True, help="What machine it is to be like.")
@click.option("--nodes", type=click.IntRange(1, 1_000_000), help="Nodes.  [default: the machine's own]")
@click.option("--hours", type=Positive(most=1e6), default=168.0, show_default=True, help="How long.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Another seed, another log."
)
def command(out: Path, profile: str, nodes: int | None, hours: float, seed: int) -> None:
    """Generate a log like a real machine's and write it as a CSV of idle intervals to OUT.

    summit: the published week of Summit (2021, 4,734 nodes). theta: 2022 of Theta (4,360 nodes). small:
    KTH's SP2 (1996, 100 nodes). For other numbers of nodes the rates are in proportion. It begins at
    time 0; .gz and .xz are packed.
    """
    from bftrainer.traces.intervals import write
    from bftrainer.traces.synthetic.generate import generate
    from bftrainer.traces.synthetic.profiles import PROFILES as FITTED

    fitted = FITTED[profile]
    with progress_bar("generate") as progress:
        made = generate(fitted, nodes or fitted.nodes, hours, seed, progress)
    with progress_bar("write") as progress:
        write(out, made, hours * 3600, progress)
    say(f"{out}: {counted(len(made), 'interval')}", err=True)
