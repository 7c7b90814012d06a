"""As whom commands run."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Sequence

from bftrainer.errors import BftrainerError, SchedulerError
from bftrainer.messages.commands.running import NO_NAME

USER = re.compile(r"(?![-#~])(?!\.\.?$)[^\s:/]+(?: [^\s:/]+)*")
"""Names that the system can know, also of a directory: alice@ad.example.org, EXAMPLE\\alice, EXAMPLE\\Jo Li.
None begins with what sudo would take for an option or for a number (#0), or is another folder in a path."""
MOST_LETTERS = 256


def own_name() -> str:
    """The name by which the batch system knows our user, whatever LOGNAME says.

    Raises:
        BftrainerError: our number has no name here, as in a container that runs under a number of its host.
    """
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        raise BftrainerError(NO_NAME.say(number=number)) from None


def as_user(prefix: Sequence[str], user: str, words: Sequence[str]) -> list[str]:
    """The words of a command that is to run as `user`; "" is the daemon's own. `prefix` are the words before
    it, in which {user} stands for the name.

    Raises:
        SchedulerError: we cannot run commands as other users, or `user` is no name.
    """
    if not user:
        return list(words)
    if not prefix:
        raise SchedulerError(f"cannot run as {user}: set exec_prefix")
    if not USER.fullmatch(user) or not user.isprintable() or len(user) > MOST_LETTERS:
        raise SchedulerError(f"{user!r} is no name of a user")
    return [*(word.format(user=user) for word in prefix), *words]
