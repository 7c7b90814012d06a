"""bftrainer try"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input, Positive
from bftrainer.traces.whole_file import copy_folder

if TYPE_CHECKING:
    from bftrainer.model.trainer import TrainerSpec


@click.command("try")
@click.argument("spec", type=Input())
@click.option(
    "--steps",
    type=click.IntRange(min=2),
    default=None,
    show_default="20; with --partial 100",
    help="At least so many.",
)
@click.option(
    "--seconds",
    type=Positive(most=3600),
    default=8.0,
    show_default=True,
    help="A script that trains for no longer runs to its own end; another ends after the steps.",
)
@click.option(
    "--give-up", type=Positive(most=86_400), default=600.0, show_default=True, help="Seconds for each run."
)
@click.option(
    "--keep",
    type=Input(dir_okay=True, exists=False),
    help="Keep the copies of the script's folder, the records and the logs as this new folder.",
)
@click.option(
    "--partial",
    type=click.IntRange(min=2, max=16),
    metavar="WORKERS",
    help="Measure partial back-propagation on so many workers instead: what it saves, and what it costs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    spec: Path,
    steps: int | None,
    seconds: float,
    give_up: float,
    keep: Path | None,
    partial: int | None,
    as_json: bool,
) -> None:
    """Try the script of the trainer spec SPEC on this machine before it is submitted.

    It runs on one process in peace, on two, and on two with a third that joins and some that are killed. It
    runs with a stop and a resumption, too; each time in a copy of its folder. Then its weights, optimizer
    state, samples, learning rates, figures and files are compared with those on one process. Exits with 1
    where something differs.
    """
    from bftrainer.rehearsal import tried
    from bftrainer.rehearsal.page import as_json as plain
    from bftrainer.rehearsal.page import cells, lines
    from bftrainer.rehearsal.rehearse import rehearse
    from bftrainer.spec.located_yaml import compose
    from bftrainer.spec.parse import check_files, parse, read

    text = read(spec)
    wanted = parse(text, str(spec), spec.parent)
    check_files(wanted, text, spec)
    written = compose(text, str(spec)).value
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its daemon ends with it
    root = Path(tempfile.mkdtemp(prefix="bft-try-")).resolve()
    try:
        if partial is not None:
            _measure(
                wanted, written, root, workers=partial, steps=steps or 100, most_s=give_up, as_json=as_json
            )
            return
        found = rehearse(
            wanted,
            written,
            root,
            steps=steps or 20,
            whole_s=seconds,
            most_s=give_up,
            say=lambda line: say(line, err=True),
        )
    finally:
        if keep is not None:
            copy_folder(root, keep)
        shutil.rmtree(root, ignore_errors=True)
    tried.note(wanted)
    if as_json:
        print_json(plain(found))
    else:
        say(f"{found.name}: {found.alone.length} steps on one process, compared, in {found.seconds:.0f} s\n")
        if found.others:
            print_table(["", *(run.title for run in found.others)], cells(found))
            say()
        say("\n".join(lines(found)))
    sys.exit(0 if found.is_same else 1)


def _measure(
    spec: TrainerSpec,
    written: Mapping[str, Any],
    root: Path,
    *,
    workers: int,
    steps: int,
    most_s: float,
    as_json: bool,
) -> None:
    """Print what partial back-propagation saves of this script's steps, and to what loss it comes."""
    from bftrainer.rehearsal.costs.measure import measure

    found = measure(
        spec,
        written,
        root,
        workers=workers,
        steps=steps,
        most_s=most_s,
        say=lambda line: say(line, err=True),
    )
    if as_json:
        print_json(asdict(found))
        return
    say(f"{found.name}: {found.workers} workers, {found.steps} steps, in {found.seconds:.0f} s\n")
    cells = [
        [
            part.name,
            f"{part.forward * 1000:.1f} ms",
            f"{part.backward * 1000:.1f} ms",
            f"{part.saved / 1e6:.2f} MB",
            f"{part.gradient / 1e6:.2f} MB",
        ]
        for part in found.parts
    ]
    print_table(["part", "forward", "backward", "activations", "gradient"], cells)
    say()
    ways = [
        [way.name, str(way.steps), f"{way.compute:.0%}", f"{way.bytes:.0%}", f"{way.loss:.4g}"]
        for way in found.ways
    ]
    print_table(["way", "steps", "compute", "bytes", "loss"], ways)
    say(
        "\nCompute is the workers' processor time in forward and backward passes, bytes what they send,\n"
        "both of full back-propagation. The loss is the mean over the last tenth of the steps. Compare\n"
        "partial with what has as much compute; where the network is slow, with exchanging half as often."
    )
