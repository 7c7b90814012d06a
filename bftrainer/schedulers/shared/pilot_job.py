"""Pilots as batch jobs of any system: their script, their longest limit, where they print to, and the
message about one that has failed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer.errors import BftrainerError, NoRoomError, SchedulerError
from bftrainer.files import read_text
from bftrainer.messages.commands.running import NOT_WHOLE, TEMPLATE
from bftrainer.messages.files.places import UNWRITABLE
from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Pilot
from bftrainer.settings.values import Settings


def find(name: str) -> Path:
    """The file `name` of the folder jobscripts.

    Raises:
        BftrainerError: it is not installed.
    """
    package = Path(__file__).absolute().parents[2]
    checkout = package.parent / "jobscripts" / name
    installed = (above / "share" / "bftrainer" / "jobscripts" / name for above in package.parents)
    for path in (checkout, *installed):
        if path.is_file():
            return path
    raise BftrainerError(NOT_WHOLE.say(file=name, checkout=checkout.parent, package=package))


MOST_KB = 1000


class Template:
    """A jinja2 template, read once: the file may lie where later nothing answers.

    Raises:
        BftrainerError: it cannot be read, or is no template.
    """

    def __init__(self, path: Path) -> None:
        import jinja2  # noqa: PLC0415  slow to import

        self._path = path
        environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined,
            finalize=lambda value: shlex.quote(str(value)),
            keep_trailing_newline=True,
            autoescape=False,  # noqa: S701  this is for a shell: finalize quotes
        )
        try:
            self._template = environment.from_string(read_text(path, MOST_KB))
        except (OSError, UnicodeDecodeError, jinja2.TemplateError) as error:
            raise BftrainerError(TEMPLATE.say(path=path, why=error)) from error

    def render(self, **values: str) -> str:
        """The script. Whatever the template prints is quoted for the shell.

        Raises:
            SchedulerError: the template asks for a value that there is not.
        """
        import jinja2  # noqa: PLC0415  slow to import

        try:
            return self._template.render(values)
        except jinja2.TemplateError as error:
            raise SchedulerError(TEMPLATE.say(path=self._path, why=error)) from error


MINUTE_S = 60.0
NOT_FOUND = 127
"""Exit code of a shell that finds no such program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotJob:
    """Facts that all pilots of a daemon share. `max_s` is the longest limit of any; `window`: there is no
    preemption, so none may last longer than its hole. `options` are the site's own for the command that
    submits, `exec_prefix` the words before it that make it run as a user."""

    instance: str
    template: Template
    python: str
    daemon: str  # where agents find it: host:port or a socket's path
    orphan_s: float
    log_dir: Path
    max_s: float
    window: bool = False
    options: tuple[str, ...] = ()
    exec_prefix: tuple[str, ...] = ()

    def minutes(self, limit_s: float | None, *, start_s: float, most_s: float | None = None) -> int:
        """The limit in whole minutes, in which batch systems count, never longer than the hole of `limit_s`
        (None: it is not known) and `most_s`. The job starts `start_s` after it was submitted.

        Raises:
            NoRoomError: without preemption a pilot must end by itself before the hole does.
        """
        hole_s = None if limit_s is None else limit_s - start_s
        shortest_s = min(bound for bound in (hole_s, self.max_s, most_s) if bound is not None)
        minutes = int(shortest_s // MINUTE_S)
        if minutes < 1 and self.window:
            raise NoRoomError(
                f"no time limit fits: there are {shortest_s:.0f} s besides {start_s:.0f} s to start, and "
                "limits count in minutes"
            )
        return max(1, minutes)

    def log_of(self, pilot: Pilot) -> Path:
        """The file that a pilot prints to; a pilot of another user may not write into our folder."""
        return Path("/dev/null") if pilot.user else self.log_dir / f"agent-{pilot.node}.log"

    def output(self, pilot: Pilot) -> str:
        """The same as batch systems want it, which fill in what follows a %."""
        return str(self.log_of(pilot)).replace("%", "%%")

    def script(self, pilot: Pilot, share: float = 1.0, **more: str) -> str:
        """The batch script, with `more` values for its template. `share`: that of its machine's cores which
        the pilot has, where other pilots of us may be beside it.

        Raises:
            SchedulerError: the template asks for a value that there is not.
        """
        return self.template.render(
            node=pilot.node,
            tag=pilot.tag,
            user=pilot.user,
            python=self.python,
            daemon=self.daemon,
            orphan_s=f"{self.orphan_s:g}",
            per_mille=str(min(1000, max(1, round(1000 * share)))),
            **more,
        )

    def failure(self, pilot: Pilot, code: int | None, said: str) -> str:
        """Explain why a pilot's job failed, by exit code and what is `said` of it, and where to look."""
        if code == NOT_FOUND:
            return f"its job failed: there is no {self.python} on {node_of(pilot.node)}; see pilot_python"
        if pilot.user:
            return (
                f"its job failed: {said}; try there, as {pilot.user}: {self.python} -m bftrainer.agent --help"
            )
        return f"its job failed: {said}; see {self.log_of(pilot)}"


def common(
    settings: Settings, agents_at: str, instance: str, *, mode: str, template: str, options: str
) -> Mapping[str, Any]:
    """The fields of a `PilotJob` by the settings: of a batch system these are its `mode`, the `template` in
    jobscripts/ that is taken if none is set, and its own `options`.

    Raises:
        BftrainerError: the template cannot be read.
    """
    return {
        "instance": instance,
        "template": Template(Path(settings.pilot_template or find(template))),
        "python": settings.pilot_python,
        "daemon": agents_at,
        "orphan_s": settings.orphan_s,
        "log_dir": settings.pilot_log_dir,
        "max_s": settings.pilot_limit_s(mode),
        "window": mode == "window",
        "options": tuple(shlex.split(options)),
        "exec_prefix": settings.exec_prefix,
    }


def make_log_dir(folder: Path) -> None:
    """Make the folder in which pilots write what their agents print.

    Raises:
        BftrainerError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BftrainerError(UNWRITABLE.say(path=f"pilot_log_dir {folder}", why=error.strerror)) from error
