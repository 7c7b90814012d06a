"""The error of sweeps."""

from __future__ import annotations

from bftrainer.errors import BftrainerError


class SweepError(BftrainerError, ValueError):
    """A sweep that cannot be read or run. The message names file, value and what to do."""
