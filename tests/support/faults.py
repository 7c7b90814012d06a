"""What goes wrong on a cluster, at random moments, several things at a time.

Each fault is a generator: it does its harm, yields for how many seconds it lasts, and mends it. One that is
not possible at the moment (slurmctld cannot hang while it is stopped) ends without a `yield`.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

from ClusterShell.NodeSet import NodeSet

from slurm.testbed import TestbedError
from tests.support.slurm_site import SlurmSite

Fault = Iterator[float]
AGAIN_S = 0.5
SHORT_OF_S = (2.0, 6.0)
"""Between two faults."""


class Faults:
    """All kinds of faults in random order, the rarest so far first; `happened` counts them."""

    def __init__(self, site: SlurmSite, rng: random.Random, *, small_disk: bool) -> None:
        self.site, self.bed, self._rng = site, site.bed, rng
        self.happened: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[], Fault]] = {
            "slurmctld stopped": self._stop_controller,
            "slurmctld hung": self._hang_controller,
            "slurmd killed": self._kill_slurmd,
            "node down": self._down,
            "node drained": self._drain,
            "daemon killed": self._kill_daemon,
            "agent killed": self._kill_agent,
            "worker killed": self._kill_worker,
        }
        if small_disk:
            self._kinds["disk full"] = self._fill_disk
        self._away = False  # slurmctld, which one fault has at a time
        self._hurt: set[str] = set()  # nodes, likewise
        self._lasting: list[tuple[float, int, str, Fault]] = []  # when each is to go on
        self._number = count()
        self._next = self._begin = time.monotonic()

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self._kinds)

    @property
    def complete(self) -> bool:
        """Whether every kind has happened."""
        return all(self.happened[kind] for kind in self.kinds)

    @property
    def controller_answers(self) -> bool:
        """Whether no fault has slurmctld now."""
        return not self._away

    def go_on(self, *, missing: bool = False) -> None:
        """To be called often: mend what has lasted long enough, and do harm when it is time. With `missing`
        only what has not happened yet: a worker that is to be killed has to come up first."""
        now = time.monotonic()
        while self._lasting and self._lasting[0][0] <= now:
            _, _, kind, fault = heapq.heappop(self._lasting)
            self._resume(kind, fault)
        if now >= self._next:
            self._next = now + (self._rng.uniform(*SHORT_OF_S) if self._start_one(missing) else AGAIN_S)

    def end(self) -> None:
        """No more harm; what lasts is mended."""
        while self._lasting:
            at, _, kind, fault = heapq.heappop(self._lasting)
            time.sleep(max(0.0, at - time.monotonic()))
            self._resume(kind, fault)
            self.site.supervise()

    def _start_one(self, missing: bool) -> bool:
        for kind in sorted(self._rng.sample(self.kinds, len(self.kinds)), key=self.happened.__getitem__):
            if missing and self.happened[kind]:
                break
            if self._resume(kind, self._kinds[kind](), first=True):
                self.happened[kind] += 1
                return True
        return False

    def _resume(self, kind: str, fault: Fault, *, first: bool = False) -> bool:
        """Whether it goes on."""
        seconds = next(fault, None)
        if seconds is None:
            if not first:
                self._tell(f"{kind}: mended")
            return False
        if first and not seconds:
            return True
        heapq.heappush(self._lasting, (time.monotonic() + seconds, next(self._number), kind, fault))
        return True

    def _tell(self, what: str) -> None:
        print(f"{time.monotonic() - self._begin:7.1f} s  {what}", flush=True)

    # slurmctld

    def _stop_controller(self) -> Fault:
        if self._away:
            return
        self._away, seconds = True, self._rng.uniform(2, 10)
        self._tell(f"slurmctld stops for {seconds:.1f} s")
        self.bed.stop_controller()
        yield seconds
        self.bed.start_controller()
        self._away = False

    def _hang_controller(self) -> Fault:
        if self._away:
            return
        self._away, seconds = True, self._rng.uniform(2, 15)
        self._tell(f"slurmctld hangs for {seconds:.1f} s")
        self.bed.pause_controller()
        yield seconds
        self.bed.continue_controller()
        self._away = False

    # nodes

    def _kill_slurmd(self) -> Fault:
        node, seconds = self._rng.choice(sorted(self._unhurt())), self._rng.uniform(0.5, 4)
        self._hurt.add(node)
        self._tell(f"{node}: slurmd is killed for {seconds:.1f} s")
        self.bed.kill_slurmd(node)
        yield seconds
        self.bed.start_slurmd(node)
        self._hurt.discard(node)

    def _down(self) -> Fault:
        yield from self._take_node("down")

    def _drain(self) -> Fault:
        yield from self._take_node("drain")

    def _take_node(self, state: str) -> Fault:
        """Only from nodes without a main job: what an operator does to that is not our doing. So they drain
        first, which no main job survives unseen."""
        node = None if self._away else self._spare_node()
        if node is None:
            return
        self._hurt.add(node)
        seconds = self._rng.uniform(2, 8)
        self._tell(f"{node}: {state} for {seconds:.1f} s")
        if state != "drain":
            self.bed.set_node(node, state)
        yield seconds
        while self._away:
            yield AGAIN_S
        try:
            self.bed.set_node(node, "resume")
        except TestbedError as error:
            if "Invalid node state" not in str(error):  # a slurmctld that was restarted had done so itself
                raise
        self._hurt.discard(node)

    def _spare_node(self) -> str | None:
        """A node that drains and runs no main job."""
        free = sorted(self._unhurt() - self._with_main_jobs())
        if not free:
            return None
        node = self._rng.choice(free)
        self.bed.set_node(node, "drain")
        if node not in self._with_main_jobs():
            return node
        self.bed.set_node(node, "resume")
        return None

    def _unhurt(self) -> set[str]:
        return set(self.bed.plan.names()) - self._hurt

    def _with_main_jobs(self) -> set[str]:
        shown = self.bed.run(["squeue", "-h", "-p", "batch", "-t", "running,completing", "-o", "%N"])
        return set(NodeSet(",".join(shown.stdout.split())))

    # ours

    def _kill_daemon(self) -> Fault:
        if not self.site.alive():
            return
        self._tell("the daemon is killed")
        self.site.kill_daemon()
        yield 0.0

    def _kill_agent(self) -> Fault:
        yield from self._kill_one("an agent", self.site.agents())

    def _kill_worker(self) -> Fault:
        yield from self._kill_one("a worker", self.site.workers())

    def _kill_one(self, what: str, pids: list[int]) -> Fault:
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._rng.choice(sorted(pids)), signal.SIGKILL)
                self._tell(f"{what} is killed")
                yield 0.0

    def _fill_disk(self) -> Fault:
        seconds, ballast = self._rng.uniform(3, 10), self.site.state / "ballast"
        if ballast.exists():
            return
        self._tell(f"the store's disk is full for {seconds:.1f} s")
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        yield seconds
        ballast.unlink()


@contextlib.contextmanager
def small_disk(site: SlurmSite, megabytes: int = 32) -> Iterator[bool]:
    """The state directory on a file system of its own, if this machine lets us mount one."""
    site.state.mkdir(mode=0o700)
    kind = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", str(site.state)]
    mounted = subprocess.run(kind, check=False, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(site.state)], check=True)
