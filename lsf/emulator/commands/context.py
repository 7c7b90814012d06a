"""A command's context: the cluster, its caller, and LSF's present faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from lsf.emulator.core.cluster import Cluster
from lsf.emulator.core.jobs import Job
from lsf.emulator.core.usage import Window
from lsf.emulator.manners import Manners

ROOT = "root"


@dataclass(frozen=True, slots=True)
class Answer:
    """A command's output and exit code.

    Attributes:
        retry_s: Seconds until the client retries after a failure; None: it does not.
        hang: Its standard error is all that it prints, and then it waits for ever.
    """

    out: str = ""
    err: str = ""
    code: int = 0
    retry_s: float | None = None
    hang: bool = False


FAILED = 255


def failed(text: str) -> Answer:
    """An error."""
    return Answer(err=text, code=FAILED)


@dataclass(slots=True)
class Lsf:
    """An emulated LSF: a cluster, its manners, and what some of these remember.

    Attributes:
        windows: Those that bslots has shown last and when, for stale ones.
        hosts: What bhosts has answered to a command line, and in which version of the cluster.
    """

    cluster: Cluster
    manners: Manners = field(default_factory=Manners)
    windows: dict[bool, tuple[float, list[Window]]] = field(default_factory=dict)
    hosts: dict[tuple[str, ...], tuple[int, Answer]] = field(default_factory=dict)

    def spend(self, name: str) -> bool:
        """Return whether a counted bad manner strikes now; it does once less then."""
        left: int = getattr(self.manners, name)
        if left <= 0:
            return False
        self.manners = replace(self.manners, **{name: left - 1})  # type: ignore[arg-type]
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a command.

    Attributes:
        words: What stands after its name.
        read: What stands on its standard input.
    """

    lsf: Lsf
    words: tuple[str, ...]
    now: float
    user: str = ROOT
    uid: int = 0
    cwd: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    host: str = "login1"
    read: Callable[[], str] = str

    @property
    def admin(self) -> bool:
        """Return whether the caller may do everything."""
        return self.uid == 0

    def may(self, job: Job) -> bool:
        """Return whether the caller may change a job."""
        queue = self.lsf.cluster.state.queues[job.request.queue]
        return self.admin or self.user in queue.administrators or job.request.user == self.user
