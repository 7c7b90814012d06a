"""Commands of the emulated LSF asked without a server, and times as its outputs have them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from lsf.emulator.commands.context import Answer, Call, Lsf
from lsf.emulator.commands.registry import answer
from lsf.emulator.core.cluster import Cluster
from lsf.emulator.core.jobs import Job
from lsf.emulator.core.model import Site
from lsf.emulator.manners import Manners


def moment(text: str, form: str = "%Y %b %d %H:%M:%S") -> float:
    """A local time in Unix s."""
    return time.mktime(time.strptime(text, form))


@dataclass
class Desk:
    """An emulated LSF whose time stands still until `now` is changed."""

    site: Site
    now: float = 0.0
    manners: Manners = field(default_factory=Manners)
    user: str = "root"
    uid: int = 0
    host: str = "login1"
    cwd: str = "/"
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lsf = Lsf(Cluster(self.site, self.now), self.manners)

    @property
    def cluster(self) -> Cluster:
        return self.lsf.cluster

    def ask(self, name: str, *words: str, script: str = "", **changes: Any) -> Answer:
        given = {
            "user": self.user,
            "uid": self.uid,
            "cwd": self.cwd,
            "env": self.env,
            "host": self.host,
            **changes,
        }
        call = Call(lsf=self.lsf, words=words, now=self.now, read=lambda: script, **given)
        return answer(name, call)

    def submit(self, *words: str, **changes: Any) -> Job:
        """Submit a job with bsub; it must be taken."""
        said = self.ask("bsub", *words, **changes)
        assert not said.code, said.err
        return max(self.cluster.state.jobs.values(), key=lambda job: job.id)
