"""Refusals of logs of idle nodes, after the file."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

NO_KNOWN_FORMAT = Diagnostic(
    520,
    "of no known format",
    "If it is one of {formats}, name it with --format",
    "The first lines tell the format. [Logs](traces.md) shows the first lines of each.",
)
OTHER_KIND = Diagnostic(
    521,
    "it is {what}",
    "Take {instead}",
    "bftrainer reads texts, plain or packed by gzip, xz, bzip2 or zip: see [Logs](traces.md).",
)
TELLS_NOTHING = Diagnostic(
    522,
    "{why}: it does not tell which nodes were idle",
    "Take a log of a longer time, one that tells when jobs began and ended, and on which nodes",
    "Idle nodes follow from what jobs used, from samples, or from a list of idle times. Without any of these "
    "there is nothing to replay.",
)
TOO_LONG = Diagnostic(
    523,
    "{what} more than {most:,} characters",
    "Check that this is a log, and the one that you mean",
    "No log has lines or files of that length. A small packed file can hold any amount.",
)
LACKS_COLUMNS = Diagnostic(
    524,
    "its columns are {found}, and {kind} has {needed}",
    "Write the log with these{how}",
    "Columns are found by their names, which stand in the first line.",
)
TOO_BROKEN = Diagnostic(
    525,
    "{broken:,} of {seen:,} lines ({share:.1%}) cannot be understood, more than --max-broken {bound:g}",
    "Mend the log, allow more, or name its --format",
    "A few lines may be damaged in any log, and are left out. With more, the figures would be wrong. The "
    "lines before this one say what is wrong with the first of them.",
)
OUTSIDE = Diagnostic(
    526,
    "{asked}: the log spans {begin} to {end} UTC ({hours:.4g} h)",
    "Stay within",
    "Nothing is known of nodes before a log begins, and after it ends. Times are UTC unless they name a "
    "zone.",
)
FEWER_NODES = Diagnostic(
    527,
    "{asked:,} nodes are asked for, and the log has {there:,}",
    "Ask for at most that many",
    "Only nodes that the log names can be taken.",
)
MACHINE_NODES = Diagnostic(
    528,
    "a machine of {given:,} nodes cannot be: {why}",
    "Give --machine-nodes from {least:,} to {most:,}",
    "The size of the machine is that of the option, or else what the log says of it. Shares of idle nodes "
    "are shares of it.",
)
CORES_OF_GPUS = Diagnostic(
    529,
    "--cores-per-node {given}: with --gpu-jobs {fit} the log's processors are GPUs",
    "Leave --cores-per-node out, and give --gpus-per-node",
    "With `--gpu-jobs` each job of the log asked for so many GPUs, not cores.",
)
RECORD_VERSION = Diagnostic(
    530,
    "it is a record of version {given!r}, and {known} is read",
    "Read it with the version of bftrainer that recorded it, or a newer one",
    "The form of records may change between versions, and its first line says which one it has.",
)
NO_SERIES = Diagnostic(
    531,
    "it is no regular file, and no folder with files of `bftrainer record` (record-*.jsonl)",
    "Name the log itself",
    "A folder is read if `bftrainer record` wrote into it.",
)
NEVER_IDLE = Diagnostic(
    532,
    "none of the chosen nodes is idle from {begin} to {end} UTC",
    "Choose other nodes by --pick, more of them, or other hours",
    "Without an idle node no trainer would ever run, and the replay would have no figures.",
)
NOTHING_HAPPENS = Diagnostic(
    533,
    "nothing happens to {nodes} after --from",
    "Give an earlier --from, or a longer log",
    "A log that is played has nodes which become idle or are taken.",
)
