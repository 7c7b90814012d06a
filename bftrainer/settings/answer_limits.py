"""The settings that bound the daemon's answers: their size, and what asks for them at a time."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bftrainer.settings.setting import Section, SetBy, Setting


class AnswerLimits(Section):
    """What the daemon's answers may take at most."""

    max_listed: Annotated[
        int,
        Field(ge=10, le=100_000),
        Setting(
            help="trainers that wait in one answer of list",
            unit="trainers",
            live=True,
            at_bound="the answer has those that hold nodes, and those of the others that arrived first",
            told="the caller learns how many are left out; list --all asks for all, page by page",
        ),
    ] = 1000
    max_answer_mb: Annotated[
        int,
        Field(ge=1, le=1000),
        Setting(
            help="size of one answer",
            unit="MB",
            live=True,
            at_bound="the answer ends, and the next one begins there",
            told="a header of the answer leads to the rest, and the commands follow it",
        ),
    ] = 8
    max_answers_waiting_mb: Annotated[
        int,
        Field(ge=1, le=10_000),
        Setting(
            help="size of all answers above 64 kB that clients have not taken yet",
            more="Those of one user may have a quarter of it.",
            unit="MB",
            live=True,
            at_bound="the daemon refuses further large answers",
            told="status 429 or 503; admins see it in status",
        ),
    ] = 64
    max_received_mb: Annotated[
        int,
        Field(ge=1, le=10_000),
        Setting(
            help="size of all answers to one question that a command reads, such as list --all",
            more="To show them takes up to 25 times as much memory.",
            unit="MB",
            set_by=SetBy.USER,
            at_bound="the command reads no more and ends",
            told="its user, with what to do",
        ),
    ] = 100
    answer_timeout_s: Annotated[
        float,
        Field(gt=0, le=3600),
        Setting(
            help="time for a client to take an answer above 64 kB",
            unit="s",
            live=True,
            at_bound="the daemon cuts the connection",
            told="admins see it in status",
        ),
    ] = 60.0
    max_reads_waiting: Annotated[
        int,
        Field(ge=4, le=10_000),
        Setting(
            help="requests that wait for one of the three threads that answer them",
            more="A quarter of them may be of one user.",
            unit="requests",
            live=True,
            at_bound="the daemon refuses further ones; status, probes and cancel ask no disk and go on",
            told="status 429 or 503; readiness says so, and admins see it in status",
        ),
    ] = 64
    read_timeout_s: Annotated[
        float,
        Field(gt=0, le=3600),
        Setting(
            help="time in which the store must answer a request",
            more="One query may take half of it.",
            unit="s",
            at_bound="the daemon ends the query and gives no answer",
            told="status 503 with the reason; readiness says so for a minute if it is the store that is slow",
        ),
    ] = 10.0
    max_metrics_series: Annotated[
        int,
        Field(ge=100, le=1_000_000),
        Setting(
            help="series of single trainers in one answer of /metrics",
            unit="series",
            live=True,
            at_bound="the answer leaves out trainers, the latest first; totals count all",
            told="the series `bftrainer_trainers_left_out` has their number",
        ),
    ] = 10_000
