"""Studies from Python: submitted to the daemon, followed, and read as tables or as studies of Optuna."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bftrainer.remote import connect
from bftrainer.search.files.parse import parse
from bftrainer.search.study import StudySpec
from bftrainer.spec.parse import read

if TYPE_CHECKING:
    import optuna


class Study:
    """A study of the daemon that the settings name, or of the one in `state_dir`.

    The keys are those of a study file, see docs/studies.md. Relative paths start at `base`.
    """

    def __init__(
        self,
        name: str,
        *,
        base: str | Path = ".",
        state_dir: str | None = None,
        config: Path | None = None,
        **keys: Any,
    ) -> None:
        """Check the keys; without any, this is the study of that name or number which was submitted before.

        Raises:
            SpecError: the study is not valid.
            BftrainerError: the settings are wrong.
        """
        self.name, self._base = name, Path(base).resolve()
        self._client = connect(config, state_dir)
        self._text = yaml.safe_dump({"name": name, **keys}, sort_keys=False) if keys else ""
        self.spec: StudySpec | None = parse(self._text, name, self._base) if keys else None

    @classmethod
    def from_file(
        cls, path: str | Path, *, state_dir: str | None = None, config: Path | None = None
    ) -> Study:
        """The study that a file describes.

        Raises:
            SpecError: it cannot be read, or is not valid.
            BftrainerError: the settings are wrong.
        """
        place = Path(path)
        text = read(place)
        spec = parse(text, place.name, place.absolute().parent)
        found = cls(spec.name, base=place.parent, state_dir=state_dir, config=config)
        found._text, found.spec = text, spec
        return found

    def submit(self) -> Study:
        """Submit it, and return it.

        Raises:
            BftrainerError: the daemon refuses it, or no daemon answers.
        """
        body = {"spec": self._text, "name": self.name, "base": str(self._base)}
        self._client.call("POST", "studies", body=body)
        return self

    def show(self) -> dict[str, Any]:
        """All that the daemon tells of it; `table` has its trials. Raises as `submit`."""
        found: dict[str, Any] = self._client.study(self.name)
        return found

    def wait(self, seconds: float = float("inf"), every_s: float = 2.0) -> dict[str, Any]:
        """Wait until it has ended, and return what `show` does.

        Raises:
            TimeoutError: it has not after `seconds`.
        """
        deadline = time.monotonic() + seconds
        while not (found := self.show())["ended_at"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the study {self.name} has not ended after {seconds:g} s")
            time.sleep(every_s)
        return found

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The best trial so far: its number, value, samples and params; None: no trial has reported.

        If no trial has ended a rung yet, it is the one with the best last report. `short_of` says then how
        many samples its next rung has. Otherwise `short_of` is None.
        """
        found: Mapping[str, Any] | None = self.show()["best"]
        return found

    def frame(self) -> Any:
        """The trials as a pandas frame, a column for each parameter.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas as pd  # noqa: PLC0415  only who wants a frame needs it

        table = self.show()["table"]
        rows = [{key: value for key, value in t.items() if key != "params"} | t["params"] for t in table]
        return pd.DataFrame(rows, columns=None if rows else ["number"]).set_index("number")

    def to_optuna(self, url: str | None = None) -> optuna.Study:
        """The study as one of Optuna: in memory, or in the storage `url` in place of one of its name."""
        from bftrainer.search.optuna import export  # noqa: PLC0415  Optuna takes half a second to import

        found = self.show()
        return export.as_optuna(found) if url is None else export.in_storage(found, url)

    def pause(self) -> None:
        """Have its trials write checkpoints and leave their nodes."""
        self._client.call("POST", f"studies/{self.name}/pause")

    def resume(self) -> None:
        """Let it go on after a pause."""
        self._client.call("POST", f"studies/{self.name}/resume")

    def cancel(self) -> None:
        """End it; its results stay."""
        self._client.call("POST", f"studies/{self.name}/cancel")
