"""Refusals of workloads, measurements and records, from which replays are made."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

NO_CURVE_OF_MODEL = Diagnostic(
    570,
    "no curve for model {model!r} (known: {known})",
    "Give a table with it as --curves",
    "A replay computes a trainer's progress from its curve: how many samples a second it does on n nodes.",
)
SPECS_HAVE_CURVES = Diagnostic(
    571,
    "trainer specs have their own curves",
    "Leave model={model} out",
    "A model's curve is for the rows of a job table, which have none.",
)
NO_WORK_OR_CURVE = Diagnostic(
    572,
    "trainer {name!r} needs its work in samples and its curve, of whole nodes",
    "Add work: {{samples: N}} and curve: [[1, 100.0], [2, 190.0]], of nodes and samples/s",
    "Here no script runs: how fast a trainer is, and when it has ended, follow from these.",
)
NO_MEASUREMENTS_OF = Diagnostic(
    573,
    "no measurements of {name!r} in {folder} (there are: {known})",
    "Add a folder of this name with its measurements, or name another folder with --profiles",
    "A dedicated cluster is replayed from what was measured of each program.",
)
ODD_MEASUREMENT = Diagnostic(
    574,
    "{what} {why}",
    "Measure it anew, or mend the file",
    "The replay computes times of iterations from it, and these would be impossible.",
)
BEYOND_MEASURED = Diagnostic(
    575,
    "program {name}: nothing was measured of {what}",
    "Measure around it, or replay a smaller cluster (--cluster, --max-nodes)",
    "Times between measured ones are interpolated. Beyond them nobody knows.",
)
NEVER_ENDS = Diagnostic(
    576,
    "{jobs} {why}, so the replay would not end",
    "Give {more}, or jobs that need less",
    "A replay goes on until each job has ended.",
)
TOO_LITTLE_WORK = Diagnostic(
    577,
    "{jobs:,} jobs of at most {longest_h:g} h are not {hours:g} h of work on each of {devices:,} devices",
    "Give more or longer jobs",
    "The mix draws as many jobs as you ask for, and scales their lengths until the work is that much.",
)
NO_RECORD = Diagnostic(
    578,
    "no record of a replay ({why})",
    "Write one with bftrainer replay --out NAME{suffix}",
    "Reports are made of records. A record that was cut off or changed cannot be trusted.",
)
NO_HISTORY = Diagnostic(
    579,
    "no run of a daemon with trainers is recorded in it",
    "Submit some, and try again when they have run",
    "The command replays what a daemon has recorded of its trainers, and compares.",
)
ODD_HISTORY = Diagnostic(
    580,
    "what it recorded cannot be replayed: it is damaged, or of another version ({said})",
    "Replay it with the version of bftrainer that recorded it",
    "The record has values that this version would not have written.",
)
FEW_PROCESSES = Diagnostic(
    581,
    "MPI has {count} process",
    "Start 2 or more: mpiexec -n 3 bftrainer sweep ... --executor mpi",
    "One process gives the others their runs, and runs none itself.",
)
