"""The settings that bound what one user's trainers may ask of the site."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bftrainer.settings.setting import Positive, Section, SetBy, Setting

AT_SUBMIT = "the daemon refuses the spec"
NOT_ADMINS = "Admins may go beyond it, and so may the user of a daemon with `mode: single`."


class UserLimits(Section):
    """What one user may ask for: a part of `LimitSettings`."""

    max_spec_kb: Annotated[
        int,
        Field(ge=1, le=256),
        Setting(
            help="largest spec",
            more="`bftrainer submit` reads no more than that of a file.",
            unit="kB",
            live=True,
            set_by=SetBy.USER,
            at_bound=AT_SUBMIT,
            told="the user, with the spec's size",
        ),
    ] = 32
    max_specs_waiting: Annotated[
        int,
        Field(ge=1, le=10_000),
        Setting(
            help="specs of all users that wait to be checked, one after the other in a thread of its own",
            unit="specs",
            live=True,
            at_bound="the daemon refuses the next one",
            told="its user (status 503), to try again",
        ),
    ] = 64
    max_specs_waiting_per_user: Annotated[
        int,
        Field(ge=1, le=10_000),
        Setting(
            help="specs of one user that wait to be checked",
            unit="specs",
            live=True,
            at_bound="the daemon refuses the user's next one",
            told="the user (status 429), to try again",
        ),
    ] = 8
    max_submits_per_minute: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        Setting(
            help="specs that one user sends in a minute, also refused ones, in the long run; as many at once",
            more=NOT_ADMINS,
            unit="specs",
            live=True,
            set_by=SetBy.SITE,
            at_bound="the daemon refuses the user's next one until so much time has passed",
            told="the user (status 429), with the seconds to wait",
        ),
    ] = 120
    max_trainers_per_user: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        Setting(
            help="trainers of one user that have not ended",
            more=NOT_ADMINS,
            unit="trainers",
            live=True,
            set_by=SetBy.SITE,
            at_bound="the daemon refuses the user's next one",
            told="the user (status 429), to wait or cancel some",
        ),
    ] = 1000
    max_trainers: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        Setting(
            help="trainers of all users that have not ended",
            unit="trainers",
            live=True,
            at_bound="the daemon refuses the next one",
            told="its user (status 503), to try later",
        ),
    ] = 20_000
    start_timeout_s: Annotated[
        Positive | None,
        Setting(
            help="time in which a worker has to be ready, and to join the other members; never: no limit",
            more="A native script is ready when it reaches `elastic.Run`. Make it long enough for the "
            "slowest start of an honest script: until then its nodes are kept for it, though others wait.",
            unit="s",
            none_word="never",
            at_bound="the worker is killed, which counts as a failure of its program (`max_failures`); until "
            "its trainer runs, it gets only nodes that no other trainer wants",
            told="the user, in `show` and in the worker's log",
        ),
    ] = 1800.0
    silent_start_s: Annotated[
        Positive | None,
        Setting(
            help="time after which a user is told of a script that is not ready; never: at no time",
            more="A native script that never reaches `elastic.Run` runs on each node by itself, to its end.",
            unit="s",
            none_word="never",
            at_bound="nothing: the workers go on",
            told="the user, in `list`, `show` and `logs`, with what to do; the log",
        ),
    ] = 30.0
    progress_timeout_s: Annotated[
        Positive | None,
        Setting(
            help="time in which a trainer that has told of progress has to do so again, and in which its "
            "workers have to end when its work is done; never: no limit",
            more="A script under torchrun that tells of no progress is not watched.",
            unit="s",
            none_word="never",
            at_bound="the members are killed, which counts as a failure of their program (`max_failures`); "
            "until the trainer runs, it gets only nodes that no other trainer wants",
            told="the user, in `show` and in the workers' logs",
        ),
    ] = 7200.0
    max_priority: Annotated[
        float,
        Field(gt=0, le=1e6, allow_inf_nan=False),
        Setting(
            help="highest priority in a spec",
            more="With 1, users order their own trainers below those of others, never above. " + NOT_ADMINS,
            live=True,
            set_by=SetBy.SITE,
            at_bound=AT_SUBMIT,
            told="the user, with the bound",
        ),
    ] = 1.0
    max_weight: Annotated[
        float,
        Field(gt=0, le=1e6, allow_inf_nan=False),
        Setting(
            help="highest weight in a spec",
            more=NOT_ADMINS,
            live=True,
            set_by=SetBy.SITE,
            at_bound=AT_SUBMIT,
            told="the user, with the bound",
        ),
    ] = 1.0
