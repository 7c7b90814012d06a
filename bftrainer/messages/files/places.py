"""Refusals of files and folders that cannot be read or written, whatever is in them."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

STRANGERS_DATABASE = Diagnostic(
    937,
    "{path} lies where strangers can put files: {why}",
    "Copy this one file to a folder of your own, and name that",
    "SQLite does what a file called ...-journal beside a database says. A stranger's can have it delete any "
    "file of yours.",
)
UNWRITABLE = Diagnostic(
    941,
    "{path}: {why}",
    "Name another place to write to",
    "The system does not let this command write there. The words after the path are the system's.",
)
UNREADABLE = Diagnostic(
    942,
    "{path}: {why}",
    "Check the path, and that the file is whole and yours to read",
    "The file cannot be read, or ends in the middle. The words after the path are the system's.",
)
FOLDER_FULL = Diagnostic(
    943,
    "{folder} has all the MB that it may have",
    "Raise --most-mb, or move files of other times away, and start again",
    "bftrainer record stops before it fills a disk.",
)
OTHER_RECORDER = Diagnostic(
    944,
    "another recorder writes to {folder}",
    "Take another folder, or stop that one",
    "Two recorders would mix their lines in one file.",
)
TOO_LARGE_TO_COPY = Diagnostic(
    945,
    "{folder}: its files are too many or too large to be copied for each run ({mb} MB, {files:,} files at "
    "most)",
    "Let the spec's workdir be a folder with the script alone",
    "bftrainer try runs the script several times, each time in a copy of its folder. It leaves large files "
    "out that look like data.",
)
UNKNOWN_OWNER = Diagnostic(
    946,
    "this machine does not know the user {user!r}, and cannot tell which files are that user's",
    "Ask on a machine that does",
    "Only files of a trainer's own user are shown as what it printed. Others may have put "
    "something else there.",
)
