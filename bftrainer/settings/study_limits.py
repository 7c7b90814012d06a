"""The settings that bound what studies may ask of the site."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bftrainer.settings.setting import Section, SetBy, Setting


class StudyLimits(Section):
    """What users' studies may ask for: a part of `LimitSettings`."""

    max_studies_per_user: Annotated[
        int,
        Field(ge=1, le=100_000),
        Setting(
            help="studies of one user that have not ended",
            unit="studies",
            live=True,
            set_by=SetBy.SITE,
            at_bound="the daemon refuses the user's next one",
            told="the user (status 429), to wait or cancel some",
        ),
    ] = 20
    max_trials: Annotated[
        int,
        Field(ge=1, le=100_000),
        Setting(
            help="trials of one study",
            more="The daemon keeps the trials of unfinished studies in memory.",
            unit="trials",
            live=True,
            at_bound="the daemon refuses the study",
            told="the user, with the bound",
        ),
    ] = 5000
    max_trials_at_once: Annotated[
        int,
        Field(ge=1, le=10_000),
        Setting(
            help="trials of one study that have a trainer at a time",
            more="With `parallelism: auto` a study has about as many as get nodes, and this is the most; a "
            "number in the study file is cut to it.",
            unit="trials",
            live=True,
            at_bound="the study's other trials wait without a trainer",
            told="the user, in `bftrainer study show`",
        ),
    ] = 256
