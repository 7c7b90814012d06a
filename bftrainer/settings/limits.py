"""The settings that bound what users, clients and agents may use of the daemon."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from bftrainer.settings.setting import Section, Setting


class LimitSettings(Section):
    """What users, clients and agents may use of the daemon at most. [Site mode](site-mode.md#bounds) says
    what happens at each bound, and who is told what."""

    title: ClassVar[str] = "Limits"

    max_request_kb: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        Setting(
            help="largest body of a request",
            unit="kB",
            at_bound="the daemon refuses the request before it reads the rest",
            told="status 413 with the bound",
        ),
    ] = 1024
