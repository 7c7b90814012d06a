"""The settings of a daemon that serves many users, and of its users' commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from string import Formatter
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from bftrainer.settings.client.places import MUNGE_SOCKET, whole_path
from bftrainer.settings.setting import Section, SetBy, Setting


def check_placeholders(word: str) -> None:
    """Check that `{user}` is the only placeholder in a word, and filled in as it is.

    Raises:
        ValueError: another placeholder, something of a user, a format, or a single brace.
    """
    try:
        found = [part[1:] for part in Formatter().parse(word) if part[1] is not None]
    except ValueError:
        found = [("", "", "")]
    if any(part != ("user", "", None) for part in found):
        raise ValueError("{user} is all that can be filled in; write other braces twice")


def host_and_port(text: str) -> str:
    """The text itself, if it is host:port, or empty.

    Raises:
        ValueError: it is something else.
    """
    host, _, port = text.rpartition(":")
    if text and not (host and port.isdecimal() and len(port) <= 5 and int(port) < 65_536):
        raise ValueError("give host:port of this machine, such as 10.0.0.1:7464; ports go to 65535")
    return text


class SiteSettings(Section):
    """Whose trainers a daemon runs, and who may do what. [Site mode](site-mode.md) explains it all."""

    title: ClassVar[str] = "Site"

    mode: Annotated[
        Literal["single", "site"],
        Setting(
            help="whose trainers: those of the daemon's own user (single), or all users', each run as the "
            "user who submitted it (site)"
        ),
    ] = "single"
    admins: Annotated[
        tuple[str, ...],
        Setting(
            help="site mode: who may see and cancel all trainers, and pause all: users and @groups",
            live=True,
            set_by=SetBy.SITE,
        ),
    ] = ()
    exec_prefix: Annotated[
        tuple[str, ...],
        Setting(
            help="site mode: words before a command that is to run as a trainer's user, such as "
            "sudo -n -u {user} --",
            more="Needed there; `{user}` is filled in.",
            set_by=SetBy.SITE,
        ),
    ] = ()
    listen_users: Annotated[
        str,
        Setting(
            help="where users on other machines connect, as host:port, with munge; empty: nowhere",
            more="Another port than `listen`, which is for agents only.",
        ),
    ] = ""
    munge: Annotated[
        bool, Setting(help="accept users who connect to listen_users and show a munge credential")
    ] = False
    munge_socket: Annotated[Path, Setting(help="where munged listens", set_by=SetBy.USER)] = MUNGE_SOCKET
    server: Annotated[
        Annotated[str, Field(pattern=r"^.+:[0-9]{1,5}$")] | None,
        Setting(
            help="the daemon to talk to, as host:port of its listen_users; none: the one at socket",
            more="`--state-dir` on a command line goes before it.",
            set_by=SetBy.USER,
            none_word="none",
        ),
    ] = None
    metrics_trainers: Annotated[
        bool,
        Setting(
            help="all who can read metrics_port see every trainer's metrics",
            more="With users and names. Every user of the daemon's machine can read the port.",
        ),
    ] = False

    @field_validator("listen_users")
    @classmethod
    def _place_for_users(cls, text: str) -> str:
        return host_and_port(text)

    @field_validator("munge_socket")
    @classmethod
    def _whole_path_of_munged(cls, path: Path) -> Path:
        return whole_path(path)

    @field_validator("admins", mode="before")
    @classmethod
    def _names(cls, names: object) -> object:
        if not isinstance(names, str):
            return names
        words = shlex.shlex(names, posix=True)
        words.whitespace_split = True
        words.escape = words.commenters = ""  # a backslash is part of a name: EXAMPLE\alice
        return tuple(words)

    @field_validator("exec_prefix", mode="before")
    @classmethod
    def _words(cls, words: object) -> object:
        if isinstance(words, str):
            return tuple(shlex.split(words))
        if isinstance(words, list) and any(isinstance(word, dict) for word in words):
            raise ValueError("in YAML, {user} has to be quoted: '{user}'")
        return words

    @field_validator("exec_prefix")
    @classmethod
    def _only_user_in_prefix(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            check_placeholders(word)
        return words

    def as_user(self, user: str) -> tuple[str, ...]:
        """The words before a command that is to run as `user`; none in mode single."""
        return tuple(word.format(user=user) for word in self.exec_prefix)
