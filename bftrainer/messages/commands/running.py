"""Why a daemon does not start on its machine, or cannot go on."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

STATE_DIR = Diagnostic(
    250,
    "the daemon does not take its folder, state_dir",
    "Mend what the message names, or take another folder with --state-dir",
    "The folder holds the store, the key and the socket. So it is on a disk of this machine that has locks, "
    "belongs to the daemon's account, is closed to others, and nobody else can put something in its place.",
)
OTHER_DAEMON = Diagnostic(
    251,
    "another daemon uses {folder} ({who})",
    "Stop it there, or take another --state-dir",
    "Two daemons with one store would destroy it. After a machine has crashed, remove `daemon.lock` from a "
    "folder on a network file system.",
)
DATABASE = Diagnostic(
    252,
    "the database {path} cannot be used: {why}",
    "Mend what the message names, and restart the daemon",
    "The daemon keeps trainers and studies in one file of SQLite. The disk may be full, another process may "
    "hold the file, or it was moved or damaged: see [Administrators](admin.md).",
)
DAMAGED = Diagnostic(
    253,
    "trainer {id} is damaged in the store: {why}",
    "Submit it anew, with --resume to go on from its checkpoints",
    "A row of the database holds what bftrainer would not have written. The other trainers go on.",
)
UNSTORABLE_VALUE = Diagnostic(
    254,
    "a value cannot be stored: {why}",
    "Leave odd characters and huge numbers out of what you submit",
    "The database takes texts in Unicode, and numbers within its bounds.",
)
LISTENS = Diagnostic(
    255,
    "the daemon cannot listen at {place}: {why}",
    "Give a free port of this machine, or another path",
    "Another process has the port or the path, the name is of another machine, or users cannot reach it: see "
    "[Firewalls](questions.md).",
)
KEY = Diagnostic(
    256,
    "{path}: {why}; it is the daemon's key",
    "Remove what is there, and a new one is made. Pilots that still run end by themselves then",
    "With the key the daemon and its pilots know each other.",
)
INSTANCE = Diagnostic(
    257,
    "{path}: {why}",
    "Take another --state-dir if it is another user's. Otherwise remove the file",
    "The file names this daemon among others, so that it knows its own pilots in the queue.",
)
RELOAD = Diagnostic(
    258,
    "the settings are not read anew: {why}",
    "See that their file system answers, and try again",
    "The daemon goes on with the settings that it has.",
)
TEMPLATE = Diagnostic(
    259,
    "pilot template {path}: {why}",
    "Mend the template: bftrainer pilot --dry-run shows what it makes",
    "Pilots are jobs whose script is this template of Jinja, filled in for each node.",
)
NOT_WHOLE = Diagnostic(
    260,
    "{file} is neither in {checkout} nor in a share/bftrainer above {package}",
    "Install bftrainer anew, with pip",
    "A wheel has more files than the package: templates of pilots and job scripts. Something has copied the "
    "package alone.",
)
SOLVER = Diagnostic(
    261,
    "solver {name} {why}",
    "Mend it, or take one that works here: highs comes with bftrainer",
    "The program that solves the MILP is not installed, has no licence for so large a problem, or failed.",
)
NO_NAME = Diagnostic(
    262,
    "no user here has the number {number}, under which this process runs",
    "Give the account that number here: in a container, by an entry of /etc/passwd",
    "The batch system knows jobs by the names of their users. A container has no name for an account of the "
    "host: see [The daemon in a container](install.md#the-daemon-in-a-container).",
)
