"""Refusals of files and folders that cannot be read or written, whatever is in them."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

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
