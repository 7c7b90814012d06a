"""The end of a process whose state is not whole any more, although nothing is wrong with its program."""

from __future__ import annotations

import logging
import os
import signal

log = logging.getLogger(__name__)


def begin_anew(why: str) -> None:
    """End this process at once. Another takes its place, which gets the state of a member that has it whole,
    or of the last checkpoint: as after a kill from outside, it is no failure of the program."""
    log.error("%s: this process ends, for another to start anew", why)
    os.kill(os.getpid(), signal.SIGKILL)
