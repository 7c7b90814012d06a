"""Errors of a testbed."""

from __future__ import annotations

from bftrainer.errors import BftrainerError


class TestbedError(BftrainerError):
    """The testbed cannot be brought up, found or used; the message says why and what to do."""

    __test__ = False  # its name is no test's
