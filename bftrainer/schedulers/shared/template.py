"""The batch script of pilots."""

from __future__ import annotations

import shlex
from pathlib import Path

from bftrainer.errors import BftrainerError, SchedulerError
from bftrainer.files import read_text

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
            raise BftrainerError(f"pilot template {path}: {error}") from error

    def render(self, **values: str) -> str:
        """The script. Whatever the template prints is quoted for the shell.

        Raises:
            SchedulerError: the template asks for a value that there is not.
        """
        import jinja2  # noqa: PLC0415  slow to import

        try:
            return self._template.render(values)
        except jinja2.TemplateError as error:
            raise SchedulerError(f"pilot template {self._path}: {error}") from error
