"""Prints what a check of a site found."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

from bftrainer.cli.shared.tables import print_json, print_table

if TYPE_CHECKING:
    from bftrainer.model.finding import Finding


def finish(found: Sequence[Finding], *, as_json: bool) -> NoReturn:
    """Print what was found, and end with exit code 1 if something is wrong."""
    from bftrainer.model.finding import Level

    if as_json:
        print_json([asdict(one) for one in found])
    else:
        print_table(("", "check", "found"), [row for one in found for row in _rows(one)])
    sys.exit(1 if any(one.level is Level.WRONG for one in found) else 0)


def _rows(finding: Finding) -> list[tuple[str, str, str]]:
    """What was found, with what to do about it on a line of its own."""
    found = [(finding.level.value, finding.check, finding.found)]
    return [*found, ("", "", f"-> {finding.remedy}")] if finding.remedy else found
