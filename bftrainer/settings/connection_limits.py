"""The settings that bound connections and requests."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bftrainer.settings.setting import Section, Setting


class ConnectionLimits(Section):
    """How many connections and requests there may be, and what each may take."""

    max_connections: Annotated[
        int,
        Field(ge=8, le=100_000),
        Setting(
            help="connections of users at once, on the Unix socket and over TCP; each serves one request",
            unit="connections",
            at_bound="the daemon closes the longest idle connection of the user with the most; if none is "
            "idle, it refuses new ones",
            told="status 503 with the bound; the command line tries again for a while",
        ),
    ] = 512
    max_connections_per_user: Annotated[
        int,
        Field(ge=2, le=100_000),
        Setting(
            help="connections of one user at once, with the requests that are in work; over TCP, of one "
            "address until munge has told the user",
            unit="connections",
            live=True,
            at_bound="the daemon closes the user's longest idle connection; if none is idle, it refuses new "
            "ones",
            told="status 429 with the bound; the command line tries again for a while",
        ),
    ] = 32
    max_requests_per_second: Annotated[
        float,
        Field(ge=1, le=100_000, allow_inf_nan=False),
        Setting(
            help="requests of one user (or address, as above) in a second; after a pause, four times as many "
            "at once",
            unit="requests",
            live=True,
            at_bound="the daemon refuses further requests, most of them before it reads them",
            told="status 429 with the bound; the command line tries again for a while",
        ),
    ] = 100.0
    max_request_kb: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        Setting(
            help="largest body of a request, at least twice `max_spec_kb`",
            unit="kB",
            at_bound="the daemon refuses the request before it reads the rest",
            told="status 413 with the size and the bound",
        ),
    ] = 64
    request_timeout_s: Annotated[
        float,
        Field(gt=0, le=3600, allow_inf_nan=False),
        Setting(
            help="time for a client to send a request's head, then its body, and to take the answer",
            unit="s",
            live=True,
            at_bound="the daemon closes the connection",
            told="status 408 with the bound, where no answer has begun",
        ),
    ] = 10.0
    user_lookup_timeout_s: Annotated[
        float,
        Field(gt=0, le=3600, allow_inf_nan=False),
        Setting(
            help="time for the directory of users (NSS: files, LDAP, sssd) to say which user has a number; "
            "the answer counts for a minute",
            unit="s",
            at_bound="a user that was known before is served; the daemon refuses others",
            told="status 503 with the bound; the command line tries again for a while",
        ),
    ] = 5.0
    max_agents: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        Setting(
            help="connections of agents at once: at least the machine's nodes",
            more="Agents have a listener of their own, so that users' connections never keep them out.",
            unit="connections",
            at_bound="the daemon closes connections that have not proven to be an agent's, the longest idle "
            "first; an agent that finds no place tries again",
            told="status 503; the agent's log",
        ),
    ] = 10_000
