"""bftrainer trace"""

from __future__ import annotations

import click

from bftrainer.cli import trace_convert, trace_info, trace_synth
from bftrainer.cli.shared.groups import SuggestingGroup


@click.group("trace", cls=SuggestingGroup)
def command() -> None:
    """Look at logs of idle nodes, convert them, and generate some.

    Formats: idle intervals (CSV), SWF, sacct --parsable2, jobcomp/filetxt, periodic dumps of sinfo or of
    LSF's bhosts, lsb.acct, what `bftrainer record` writes; each plain, .gz or .xz.
    """


command.add_command(trace_info.command)
command.add_command(trace_convert.command)
command.add_command(trace_synth.command)
