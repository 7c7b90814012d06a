"""Refusals of tables and lists of values, after the file and the line, or of values on the command line."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

WRONG_VALUE = Diagnostic(
    540,
    "{name} {given} cannot be used",
    "Give {wanted}",
    "Other values cannot be, or say nothing. If a file's name stands before it, the number after the name is "
    "the line.",
)
NO_COLUMN = Diagnostic(
    541,
    "no column {missing}",
    "Give {what} with the columns {columns}",
    "Columns are found by their names in the first line. A line that is cut off lacks those at its end.",
)
TOO_MANY = Diagnostic(
    542,
    "{count:,} {what}, and at most {most:,} are taken",
    "Give fewer, or divide them",
    "The bound keeps time and memory within what one machine has.",
)
NOTHING_THERE = Diagnostic(
    543,
    "no {what} in it",
    "Add {some}, or name another place",
    "The file or folder is there, but lacks what the command works on.",
)
NO_FILE = Diagnostic(
    544,
    "{what}: there is no such {kind}",
    "Give {which}",
    "Relative paths begin in the present folder, and those in a file beside this file.",
)
SECOND = Diagnostic(
    545,
    "a second {what} {name!r}",
    "Give each a name of its own",
    "Results are told apart by these names.",
)
UNKNOWN_NAME = Diagnostic(
    546,
    "unknown {kind} {name}",
    "Give {known}",
    "A misspelt name would change nothing, so that you would see figures of something else.",
)
NOT_IN_FORM = Diagnostic(
    547,
    "{part}: this is no {form}",
    "Write it in this form",
    "A sweep's file has the parts `base`, `grid` and `runs`: see [Replays](replay.md). The files of a plan "
    "are in [Planning](planning.md).",
)
