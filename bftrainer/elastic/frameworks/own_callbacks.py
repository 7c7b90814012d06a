"""State of a script's own callbacks, such as an average of weights, that a framework's checkpoints lack."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bftrainer.elastic.checks.loop_variables import LoopVariables
from bftrainer.elastic.process.warnings import note_warning
from bftrainer.messages.diagnostic import Diagnostic


class OwnCallbacks:
    """Warns of what callbacks keep, once it has changed. `said`: the warning."""

    def __init__(self, said: Diagnostic) -> None:
        self._said = said
        self._callbacks: list[Any] = []
        self._known: list[object] = []
        self._variables: LoopVariables | None = None  # from the first step on: all callbacks have begun then

    def begin(self, callbacks: Iterable[Any], *known: object) -> None:
        """Look at these after the steps. `known`: the framework's trainer, and its model."""
        self._callbacks, self._known = list(callbacks), list(known)

    def after_step(self) -> None:
        """Look at them now and then."""
        if self._variables is None:
            self._variables = LoopVariables.of_callbacks(self._callbacks, self._known, self._said)
        elif told := self._variables.stepped():
            note_warning(told)
