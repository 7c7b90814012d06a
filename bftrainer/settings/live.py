"""Divides settings into those that a running daemon can take over and those that need a restart. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from bftrainer.messages.files.settings import NEEDS_RESTART
from bftrainer.settings.client.given import SettingsError
from bftrainer.settings.setting import facts
from bftrainer.settings.values import Settings

LIVE = frozenset(name for name, setting in facts(Settings).items() if setting.live)
"""Settings that are read again whenever they are needed. Everything else was built into what runs: open files
and sockets, nodes that were classed as they joined, what agents were told when they started."""


Refused = Mapping[str, tuple[object, object]]
"""Settings that need a restart: name -> (value that is kept, value that was wanted)."""


def reloaded(old: Settings, new: Settings) -> tuple[Settings, Refused]:
    """`old` with the live settings of `new`; beside it, the other settings in which they differ.

    Raises:
        SettingsError: the live settings of `new` contradict settings that stay as in `old`.
    """
    held = {name: getattr(old, name) for name in Settings.model_fields}
    wanted = {name: getattr(new, name) for name in Settings.model_fields if getattr(new, name) != held[name]}
    refused = {name: (held[name], value) for name, value in wanted.items() if name not in LIVE}
    try:
        settings = Settings.model_validate(held | {n: v for n, v in wanted.items() if n in LIVE})
    except ValidationError as error:
        said = "; ".join(e["msg"].removeprefix("Value error, ") for e in error.errors())
        kept = ", ".join(sorted(refused))
        raise SettingsError(NEEDS_RESTART.ends(f"{said} ({kept} cannot change without a restart)")) from error
    return settings, refused


class LiveSettings:
    """The settings as they are now. All parts of a daemon share one, so that a reload reaches them all."""

    def __init__(self, settings: Settings) -> None:
        self.current = settings

    def reload(self, wanted: Settings) -> Refused:
        """Take over from `wanted` what may change; returns what may not.

        Raises:
            SettingsError: what may change does not go together with what may not; nothing has changed.
        """
        self.current, refused = reloaded(self.current, wanted)
        return refused
