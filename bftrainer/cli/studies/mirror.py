"""bftrainer study mirror"""

from __future__ import annotations

import json
import os
import pwd
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.api.client import Client, DaemonError
from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Positive
from bftrainer.cli.studies.words import study_argument
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.lines import NO_STORAGE
from bftrainer.search.files.parse import parse
from bftrainer.spec.located_yaml import SPECS

if TYPE_CHECKING:
    from bftrainer.search.optuna.mirror import Mirror

MOST_S = 60.0
"""The longest pause before a storage that could not be written is tried again."""
LAST = 20
"""Ended studies that are looked at after a restart: their last changes may not have been written."""
NICE = 10
"""The helper gives way to daemon and trainings."""

Tell = Callable[[dict[str, Any]], None]


@click.command("mirror")
@study_argument
@click.option(
    "--url", help="Optuna's storage, such as sqlite:///studies.db.  [default: the study's `storage`]"
)
@click.option(
    "--every", "every_s", type=Positive(least=0.2), default=2.0, show_default=True, help="How often (s)."
)
@client_options
def command(
    study: str, url: str | None, every_s: float, config: Path | None, state_dir: str | None, as_json: bool
) -> None:
    """Keep a storage of Optuna like STUDY until it ends, for optuna-dashboard and your own code.

    It writes as you. A daemon of your own does the same by itself where the study file has a `storage`.
    """
    client = connect(config, state_dir)
    last = ""

    def tell(known: dict[str, Any]) -> None:
        nonlocal last
        if as_json:
            print_json(known)
            return
        text = (
            f"{known['error']}; trying again"
            if known["error"]
            else f"writing {known['url']} as {known['name']}"
        )
        if text != last:
            say(text)
        last = text

    follow(client, study, every_s, tell, _whole(url), patient=False)


def _whole(url: str | None) -> str | None:
    """A storage's URL, with files relative to the present folder; BftrainerError if it is invalid."""
    from bftrainer.search.optuna.storage import checked

    try:
        return checked(url, Path.cwd()) if url is not None else None
    except ValueError as error:
        raise BftrainerError(f"--url: {error}") from error


def follow(
    client: Client, study: str, every_s: float, tell: Tell, url: str | None = None, *, patient: bool = True
) -> None:
    """Write a study again and again until it has ended and its end is written; tell each time how that went.

    Raises:
        BftrainerError: the study has no storage, or the daemon does not answer; or, unless it is `patient`,
            the study has ended and there is no folder for the storage, or another user has named that.
    """
    from bftrainer.search.optuna.mirror import Mirror, NoFolderError
    from bftrainer.search.optuna.storage import shown

    mirror: Mirror | None = None
    pause_s = every_s
    while True:
        found = client.study(study)
        if mirror is None:
            if url is None and not patient and found["user"] != pwd.getpwuid(os.geteuid()).pw_name:
                raise BftrainerError(NO_STORAGE.say(study=study, said=f"is {found['user']}'s"))
            url = url or parse(found["text"], study, Path(found["base"]), SPECS, accepted=True).storage
            if url is None:
                raise BftrainerError(NO_STORAGE.say(study=study, said="has no storage"))
            mirror = Mirror(url)
        known = {"study": found["id"], "url": shown(url or ""), "name": "", "error": ""}
        try:
            known["name"], pause_s = mirror.update(found), every_s
        except BftrainerError as error:
            if found["ended_at"] and not patient and isinstance(error, NoFolderError):
                raise
            known["error"], pause_s = str(error), min(2 * pause_s, MOST_S)
        tell(known)
        if found["ended_at"] and not known["error"]:
            return
        time.sleep(pause_s)


@click.command("mirrors", hidden=True)
@click.argument("socket", type=click.Path(path_type=Path))
@click.option("--every", "every_s", type=float, default=2.0, help="How often (s).")
def mirrors(socket: Path, every_s: float) -> None:
    """Keep the storages of all studies of the daemon at SOCKET: its helper. A line of JSON tells of each
    writing; ends with standard input."""
    os.nice(NICE)
    followed = set[int]()
    lock = threading.Lock()

    def tell(known: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(known) + "\n")
            sys.stdout.flush()

    while not select.select([sys.stdin], [], [], every_s)[0]:
        try:
            rows = Client(socket).call("GET", "studies", limit=LAST)
        except DaemonError:
            continue
        for row in rows:
            if row["storage"] and row["id"] not in followed:
                followed.add(row["id"])
                threading.Thread(
                    target=_follow, args=(socket, str(row["id"]), every_s, tell), daemon=True
                ).start()
    os._exit(0)  # a thread may hang in a file system that does not answer


def _follow(socket: Path, study: str, every_s: float, tell: Tell) -> None:
    """Follow a study to its end, whatever happens to the daemon meanwhile."""
    while True:
        try:
            follow(Client(socket), study, every_s, tell)
            return
        except BftrainerError:
            time.sleep(every_s)
