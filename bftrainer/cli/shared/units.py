"""The unit that is counted, in words: nodes, or GPUs where the site shares out single ones (`share: gpu`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def units(answer: Mapping[str, Any]) -> str:
    """Return "nodes" or "GPUs", as an answer of the daemon says; one of an earlier version does not."""
    return f"{answer.get('unit', 'node')}s"
