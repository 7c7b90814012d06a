"""Refusals of the command line: options that do not fit together, and what commands do not find."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

NOT_WITH = Diagnostic(
    340,
    "{options}: not with {other}",
    "Leave out one or the other",
    "Each of them says what the other one excludes, or has no meaning beside it. `--help` tells what each is "
    "for.",
)
ONLY_WITH = Diagnostic(
    341,
    "{options}: only with {other}",
    "Add {other}, or leave {options} out",
    "Alone it would change nothing, and you would not notice. `--help` tells what each is for.",
)
NEEDS = Diagnostic(
    342,
    "{command} needs {option}",
    "Add it: {what}",
    "There is no value that fits most cases, so bftrainer does not choose one for you.",
)
NOT_OFFERED = Diagnostic(
    343,
    "{what} {given}: {where} has no such one",
    "Choose {choices}",
    "Some words are known to parts of a command only. `--help` tells which.",
)
NO_TIME = Diagnostic(
    344,
    "{given!r} is no time",
    "Write it like 2021-02-11T00:48:48, in UTC, or with its zone as in 2021-02-11T00:48:48+01:00",
    "Times are those of ISO 8601, from the year 1 to 9999.",
)
NOT_INSTALLED = Diagnostic(
    345,
    "{what} needs {package}, which is not installed",
    "Install it in the Python of bftrainer: {how}",
    "Packages that few commands need do not come with bftrainer: see [Install](install.md).",
)
NO_STORAGE = Diagnostic(
    346,
    "{study} {said}, so you need a storage of your own",
    "Give one with --url, such as --url sqlite:///studies.db",
    "The command writes the study into a database of Optuna's, as you: it needs one that you may write to.",
)
NO_RESULT_YET = Diagnostic(
    347,
    "no trial of {study} has reported {metric!r}{yet}",
    "See how its trials do: bftrainer study show {id}",
    "The best trial is the one with the best reported value. Scripts report by `run.report`: see "
    "[Studies](studies.md).",
)
NO_TRIAL = Diagnostic(
    348,
    "{study} has no trial {number}: {begun:,} of {trials:,} have begun",
    "Choose one that bftrainer study show --all {study} lists",
    "Trials are numbered in the order in which they begin.",
)
NOTHING_REPORTED = Diagnostic(
    349,
    "{name}: nothing is reported and stored yet",
    "Call run.report in the script, and try again after some steps",
    "Pictures and files are made of what the script reports: see [Metrics](metrics.md).",
)
NO_BATCH_SYSTEM = Diagnostic(
    350,
    "the scheduler {scheduler} is no batch system",
    "Name one with --scheduler: see bftrainer daemon --help",
    "Only a batch system has jobs, as pilots are, and nodes whose states can be recorded.",
)
NOT_RECORDED = Diagnostic(
    351,
    "a directory, but neither a daemon's (bftrainer.db) nor recorded (record-*.jsonl)",
    "Name a log, a daemon's --state-dir, or the folder of bftrainer record",
    "A replay plays again when nodes were idle, and reads that from one of these.",
)
NO_CHECKPOINT = Diagnostic(
    352,
    "trainer {id} ({name}) {why}",
    "Submit without --resume: it begins anew, or goes on from files that the script itself keeps elsewhere",
    "A trainer that ended before its first checkpoint has left nothing to go on from.",
)
PUBLIC_ADMIN = Diagnostic(
    353,
    "--public shows what the user who runs it may see, and you are an admin here",
    "Run it as an account without trainers that is no admin",
    "Admins see all trainers and settings, and everybody who opens the page would see them, too.",
)
NO_MESSAGE = Diagnostic(
    354,
    "there is no message {given!r}: ids stand at the end of messages, from {first} to {last}",
    "Give one of them. Of a trainer tell bftrainer show, queue and events",
    "The numbers have gaps, which are for later messages.",
)
NO_MEMORY = Diagnostic(
    355,
    "there is not enough memory for this",
    "Ask for less, or use a machine with more",
    "The system gives this process no more memory.",
)
OWN_FAULT = Diagnostic(
    356,
    "bftrainer failed at this ({said})",
    "Please report it with what bftrainer --debug shows",
    "A fault of bftrainer: no input should lead to it. The exit code is 70.",
)
SYSTEM_REFUSES = Diagnostic(
    357,
    "{why}",
    "Mend what these words of the system name",
    "The system refuses what the command needs, such as a file or a connection. `bftrainer --debug` "
    "shows where.",
)
LINES_LEFT_OUT = Diagnostic(
    358,
    "{broken:,} of {lines:,} lines left out, not understood",
    "Look at the lines below: they may be cut off, or of another format",
    "A log is taken as long as few of its lines are broken. What they would have said is missing.",
)
WITHOUT_MILP = Diagnostic(
    359,
    "{what} made without the MILP that was asked for: {why}",
    "Install another solver, or give --allocator auto",
    "The solver has failed in these decisions, and another allocator has made them.",
)
RUNS_FAILED = Diagnostic(
    360,
    "{failed} of {runs} runs failed",
    "Repeat the command to try them again",
    "The column `error` of the results says why. Runs that are done are not repeated.",
)
