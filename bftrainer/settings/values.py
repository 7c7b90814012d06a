"""All settings in one typed, frozen object."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import model_validator

from bftrainer.messages.files.settings import (
    MUNGE_AND_LISTEN,
    NEEDS_PREFIX,
    NEEDS_SITE,
    NO_SITE_HERE,
    UNREACHABLE_SOCKET,
)
from bftrainer.settings.batch.lsf import LsfSettings
from bftrainer.settings.batch.pilots import PilotSettings
from bftrainer.settings.batch.slurm import SlurmSettings
from bftrainer.settings.daemon import DaemonSettings
from bftrainer.settings.decisions import DecisionSettings
from bftrainer.settings.limits import LimitSettings
from bftrainer.settings.nodes import NodeSettings
from bftrainer.settings.schedulers import SCHEDULERS
from bftrainer.settings.setting import Section, facts
from bftrainer.settings.site import SiteSettings

EQUAL_SHARES: Mapping[str, float] = MappingProxyType({"others": 1.0})
"""Default of `user_shares` with `mode: site`."""


class Settings(
    LimitSettings,
    SiteSettings,
    LsfSettings,
    SlurmSettings,
    PilotSettings,
    NodeSettings,
    DecisionSettings,
    DaemonSettings,
):
    """Everything that a site or user can set. Names are flat: a section is how files and pages are
    ordered."""

    @model_validator(mode="before")
    @classmethod
    def _a_sites_users_share_alike(cls, given: object) -> object:
        """Unless a site says otherwise, no user's many trainers leave another's without nodes."""
        if isinstance(given, dict) and given.get("mode") == "site" and "user_shares" not in given:
            return {**given, "user_shares": dict(EQUAL_SHARES)}
        return given

    @model_validator(mode="after")
    def _what_the_mode_needs(self) -> Settings:
        as_user = any("{user}" in word for word in self.exec_prefix)
        if self.mode == "single" and self.exec_prefix:
            raise ValueError(NEEDS_SITE.say())
        if self.mode == "site" and not as_user:
            raise ValueError(NEEDS_PREFIX.say())
        if self.mode == "site" and SCHEDULERS[self.scheduler].on_this_machine:
            raise ValueError(NO_SITE_HERE.say(scheduler=self.scheduler))
        if self.mode == "site" and self.socket.is_relative_to(self.state_dir):
            raise ValueError(UNREACHABLE_SOCKET.say(state_dir=self.state_dir))
        if self.munge != bool(self.listen_users):
            raise ValueError(MUNGE_AND_LISTEN.say())
        return self


SECTIONS: tuple[type[Section], ...] = (
    DaemonSettings,
    DecisionSettings,
    NodeSettings,
    PilotSettings,
    SlurmSettings,
    LsfSettings,
    SiteSettings,
    LimitSettings,
)
"""The sections in the order of the documentation."""

NO_VALUE: Mapping[str, str] = {
    name: setting.none_word for name, setting in facts(Settings).items() if setting.none_word
}
"""The words for None, where a setting may be left open."""


def of_command(command: str) -> tuple[str, ...]:
    """The names of the settings for which a command has options."""
    return tuple(name for name, setting in facts(Settings).items() if command in setting.commands)
