"""The daemon's side towards an emulated LSF that behaves badly, in virtual time: main jobs come first, none
is lost, and once LSF behaves again the trainer has all hosts, and each host one pilot.

The table in docs/contributing/lsf-emulator.md says which test shows what.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from lsf.emulator import sites
from lsf.emulator.core.jobs import Job
from lsf.emulator.core.model import Demand, Host, OnPreempt, Request, Site, State
from lsf.emulator.manners import Manners
from lsf.impact.machine import PILOTS
from lsf.impact.played import Side
from lsf.impact.virtual import VirtualLsf
from lsf.impact.virtual_time import VirtualLoop, run

ROOT = Path(__file__).parents[3]
HOSTS, SLOTS = 4, 42
SETTINGS = {"poll_s": 1.0, "debounce_s": 0, "spare_s": 2, "headroom": 0, "command_timeout_s": 5.0}
ALONE_S, AGAIN_S, QUIET_S = 20.0, 4.0, 120.0
LIMIT_S = 600.0
STEPS = ((1, 0, 20.0), (2, 0, 15.0), (0, 5, 10.0), None, (3, 0, 10.0), None, None)
"""Every `AGAIN_S`: a main job on so many hosts or slots, for so many seconds."""
OUTAGE_S = AGAIN_S * len(STEPS) + 8.0
"""Nobody hears of main jobs before LSF answers again."""


def small(how: OnPreempt | None = None, *, launch: int = 0, **changes: Any) -> Site:
    return replace(sites.small(HOSTS, slots=SLOTS, launch=launch, preempt=how), cycle_s=1.0, **changes)


@dataclass(frozen=True, kw_only=True)
class Bad:
    """What is bad: the site, manners that are set for a time and, if they are counted, again and again, and
    what happens besides. LSF preempts nothing, unless the site says so: the daemon alone gives hosts back. A
    main job waits longer than without it by `later_s` at most."""

    site: Site = field(default_factory=small)
    manners: Mapping[str, Any] = field(default_factory=dict)
    happens: Callable[[VirtualLsf], None] = lambda lsf: None
    settings: Mapping[str, Any] = field(default_factory=dict)
    later_s: float = 6.0


def pilots_of(lsf: VirtualLsf) -> list[Job]:
    return [job for job in lsf.jobs() if job.request.queue == PILOTS and not job.ended]


def start_again(lsf: VirtualLsf) -> None:
    """An administrator has a pilot start again: it waits with the same number."""
    for job in pilots_of(lsf)[:1]:
        lsf.lsf.cluster.requeue(job, lsf.now())


def be_deaf(lsf: VirtualLsf) -> None:
    """Pilots end at SIGKILL only."""
    for job in pilots_of(lsf):
        job.request = replace(job.request, deaf=True)


def suspend(lsf: VirtualLsf) -> None:
    """An administrator stops a pilot."""
    for job in pilots_of(lsf)[:1]:
        lsf.lsf.cluster.stop(job, lsf.now())


UNEQUAL = tuple(Host(name=f"h{n}", slots=slots) for n, slots in enumerate((8, SLOTS, SLOTS, SLOTS), 1))
EXPERT = {"lsf_submission": "expert", "lsf_launch_slots": 1}
BAD = {
    "launch hosts": Bad(site=small(launch=2), settings=EXPERT),
    "hosts of unequal slots": Bad(site=small(hosts=UNEQUAL)),
    "the default queue": Bad(site=small(default_queue=PILOTS), settings={"lsf_queue": ""}),
    "answers on standard error": Bad(manners={"on_stderr": True}),
    "long times": Bad(manners={"long_times": True, "short_hosts": True}),
    "padded names": Bad(manners={"padded_hosts": True}),
    "exit codes": Bad(manners={"bjobs_code": 255, "consistent_exit": True, "no_exit_codes": True}),
    "late reports": Bad(site=small(report_s=5.0), later_s=12.0),
    "SIGKILL only": Bad(site=small(kill_parallel=True)),
    "a slow sequence of signals": Bad(site=small(terminate_interval_s=30.0)),
    "deaf pilots": Bad(happens=be_deaf, later_s=30.0),
    "preemption requeues": Bad(site=small(OnPreempt.REQUEUE)),
    "preemption suspends": Bad(site=small(OnPreempt.SUSPEND)),
    "preemption kills": Bad(site=small(OnPreempt.KILL)),
    "no preemption": Bad(),
    "stopped pilots": Bad(happens=suspend),
    "requeued pilots": Bad(happens=start_again),
    "gaps": Bad(manners={"missing": 1}),
    "down for a try": Bad(manners={"down": 1}),
    "down": Bad(manners={"down": 1_000}, later_s=OUTAGE_S),
    "hanging": Bad(manners={"hang": True}, later_s=OUTAGE_S),
    "hanging, with preemption": Bad(site=small(OnPreempt.KILL), manners={"hang": True}),
    "orders without answers": Bad(manners={"unanswered": 1}, later_s=12.0),
    "unreachable at first": Bad(manners={"unreachable": 1}),
    "stale windows": Bad(site=small(OnPreempt.KILL), manners={"stale_s": 60.0}),
    "stale windows without preemption": Bad(manners={"stale_s": 60.0}, settings={"lsf_mode": "window"}),
    "windows apart": Bad(manners={"disjoint": True}),
    "no windows": Bad(manners={"no_windows": True}),
    "lost races": Bad(manners={"lost_races": 1, "race_s": 10.0}, later_s=18.0),
    "easy mode that lands elsewhere": Bad(
        site=small(launch=1),
        manners={"elsewhere": True},
        settings={"lsf_submission": "easy", "lsf_launch_slots": 1},
    ),
}


class Story:
    """Trainers alone, then main jobs while LSF behaves badly, then trainers alone again."""

    def __init__(self, bad: Bad, folder: Path, loop: VirtualLoop) -> None:
        self.bad, self.lsf = bad, VirtualLsf(bad.site, loop)
        self.side = Side(self.lsf, folder, **{**SETTINGS, **bad.settings})
        self.main: list[Job] = []
        self.struck: set[str] = set()  # the counted manners that did

    def submit(self, hosts: int, slots: int, seconds: float) -> None:
        """A main job on whole hosts, or on some slots of one."""
        whole = Demand(slots=SLOTS * hosts, per_host=SLOTS, whole=True)
        part = Demand(slots=slots, one_host=True)
        launch = any(host.launch for host in self.bad.site.hosts)
        request = Request(
            demand=replace(whole if hosts else part, launch=launch),
            user="main",
            queue="batch",
            duration_s=seconds,
            limit_s=LIMIT_S,
            name="main",
        )
        self.main.append(self.lsf.lsf.cluster.submit(request, self.lsf.now()))

    async def told(self) -> None:
        tasks = [
            asyncio.create_task(self.side.nodes.watch.run()),
            asyncio.create_task(self.side.nodes.hold.run()),
        ]
        await asyncio.sleep(ALONE_S)
        self.sound()
        await self.main_jobs()
        self.lsf.lsf.manners = Manners()
        await asyncio.sleep(QUIET_S)
        for task in tasks:
            assert not task.done(), task
        self.sound()

    async def without_us(self) -> None:
        await self.main_jobs()
        await asyncio.sleep(QUIET_S)
        self.lsf.jobs()  # lets time pass

    async def main_jobs(self) -> None:
        for step in STEPS:
            self.worsen()
            if step is not None:
                self.submit(*step)
            await asyncio.sleep(AGAIN_S)
            now, set_ = self.lsf.lsf.manners, self.bad.manners
            self.struck |= {name for name in set_ if getattr(now, name) != set_[name]}

    def worsen(self) -> None:
        self.lsf.lsf.manners = replace(Manners(), **self.bad.manners)
        self.bad.happens(self.lsf)

    def sound(self) -> None:
        """Each host has one pilot that runs, no other is left, and the trainer trains on all hosts."""
        hosts = {host.name for host in self.bad.site.hosts if not host.launch}
        pilots = pilots_of(self.lsf)
        assert [job.state for job in pilots] == [State.RUN] * len(hosts), [(j.id, j.state) for j in pilots]
        at = [host for job in pilots for host in self.lsf.hosts_of(job)]
        assert sorted(at) == sorted(hosts)
        (trainer,) = self.side._trainers()
        assert set(trainer.nodes) == hosts


def played(bad: Bad, folder: Path, *, with_us: bool) -> Story:
    async def whole(loop: VirtualLoop) -> Story:
        story = Story(bad, folder, loop)
        await (story.told() if with_us else story.without_us())
        return story

    return run(whole)


@pytest.mark.parametrize("name", BAD)
def test_main_jobs_come_first_and_nothing_is_lost(name: str, tmp_path: Path) -> None:
    bad = BAD[name]
    story, alone = (played(bad, tmp_path, with_us=with_us) for with_us in (True, False))
    assert [job.state for job in story.main] == [State.DONE] * len(story.main)
    assert [job.run for job in story.main] == [0] * len(story.main), "none was started twice"
    assert story.struck == {
        name for name, value in bad.manners.items() if type(value) is int and value != 255
    }
    later = [mine - theirs for mine, theirs in zip(waits(story), waits(alone), strict=True)]
    assert max(later) <= bad.later_s, later


def waits(story: Story) -> list[float]:
    return [job.start - job.submitted for job in story.main if job.start is not None]


def test_the_table_of_bad_manners_has_every_switch_and_every_case() -> None:
    text = (ROOT / "docs" / "contributing" / "lsf-emulator.md").read_text()
    table = text[text.index("| manner |") : text.index("## How far")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n| ")[1:]]
    cases = [case.strip() for row in rows for case in re.split(r"[,;] (?!with )", row[2])]
    assert sorted(filter(None, cases)) == sorted(BAD)
    assert set(Manners.__slots__) <= set(re.findall(r"\w+", " ".join(row[1] for row in rows)))
    written = "".join(path.read_text() for path in (ROOT / "tests" / "integration").glob("test_lsf_*.py"))
    named = set(re.findall(r"`(test_\w+)`", table))
    assert named and all(f"def {name}(" in written for name in named)
