"""Whatever users, hosts and processes do to the emulated LSF, it stays sound, and every job ends."""

from __future__ import annotations

import contextlib
import signal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lsf.emulator.core.cluster import Cluster
from lsf.emulator.core.effects import Signal, Start
from lsf.emulator.core.jobs import Job
from lsf.emulator.core.model import Closed, Demand, OnPreempt, Queue, Request, State, SubmitError
from lsf.emulator.core.usage import usage, windows
from tests.support.lsf_clusters import site, sound

HOSTS, SLOTS = 3, 4
LETHAL = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR2}


class Lives(RuleBasedStateMachine):
    """Real and simulated jobs of three queues. Processes of real ones end when they like, or at SIGKILL."""

    @initialize(
        how=st.sampled_from(OnPreempt),
        cycle_s=st.sampled_from([0.0, 2.0]),
        report_s=st.sampled_from([0.0, 1.5]),
        kill_parallel=st.booleans(),
    )
    def begin(self, how: OnPreempt, cycle_s: float, report_s: float, kill_parallel: bool) -> None:
        queues = (
            Queue(name="high", priority=50, preempts=("low", "mid"), most_slots_per_user=8),
            Queue(name="mid", priority=30, backfill=False, requeue_codes=frozenset({99})),
            Queue(name="low", priority=10, on_preempt=how, guaranteed_s=5.0, most_slots=10),
        )
        made = site(HOSTS, slots=SLOTS, queues=queues, cycle_s=cycle_s, report_s=report_s)
        self.cluster = Cluster(made)
        self.now = 0.0
        self.alive: dict[int, int] = {}
        self.deaf = False

    def carry_out(self) -> None:
        """Do to real processes what the cluster wants."""
        state = self.cluster.state
        while state.effects:
            effect = state.effects.pop(0)
            job = state.jobs.get(effect.job)
            if job is None or job.run != effect.run:
                continue
            if isinstance(effect, Start):
                assert effect.job not in self.alive, "a job has one run at a time"
                self.alive[effect.job] = effect.run
            elif self.alive.get(effect.job) == effect.run and self.dies(effect):
                del self.alive[effect.job]
                self.cluster.exited(job, effect.run, 128 + effect.number, self.now)

    def dies(self, effect: Signal) -> bool:
        return effect.number == signal.SIGKILL or (effect.number in LETHAL and not self.deaf)

    def one(self, at: int) -> Job | None:
        jobs = list(self.cluster.state.active.values())
        return jobs[at % len(jobs)] if jobs else None

    @rule(
        queue=st.sampled_from(["high", "mid", "low"]),
        slots=st.integers(1, 12),
        per_host=st.integers(0, SLOTS),
        whole=st.booleans(),
        limit=st.integers(0, 20),
        duration=st.one_of(st.none(), st.integers(1, 15)),
        user=st.sampled_from("ab"),
        held=st.booleans(),
        only=st.one_of(st.none(), st.sets(st.sampled_from(["h1", "h2", "h3"]), min_size=1)),
    )
    def submit(
        self,
        queue: str,
        slots: int,
        per_host: int,
        whole: bool,
        limit: int,
        duration: int | None,
        user: str,
        held: bool,
        only: set[str] | None,
    ) -> None:
        demand = Demand(
            slots=slots, per_host=per_host, whole=whole, only=frozenset(only) if only is not None else None
        )
        wanted = Request(
            demand=demand, user=user, queue=queue, limit_s=limit, duration_s=duration, held=held, words=("x",)
        )
        with contextlib.suppress(SubmitError):
            self.cluster.submit(wanted, self.now)
        self.carry_out()

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 10.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.cluster.advance(self.now)
        self.carry_out()

    @rule(at=st.integers(0, 20), what=st.sampled_from(["kill", "stop", "resume", "requeue"]))
    def order(self, at: int, what: str) -> None:
        if (job := self.one(at)) is not None:
            getattr(self.cluster, what)(job, self.now)
            self.carry_out()

    @rule(at=st.integers(0, 20), number=st.sampled_from(sorted({*LETHAL, signal.SIGKILL, signal.SIGURG})))
    def tell(self, at: int, number: int) -> None:
        if (job := self.one(at)) is not None:
            self.cluster.signal(job, number, self.now)
            self.carry_out()

    @rule(at=st.integers(0, 20), code=st.sampled_from([0, 1, 99]))
    def leave(self, at: int, code: int) -> None:
        if self.alive:
            id_ = sorted(self.alive)[at % len(self.alive)]
            run = self.alive.pop(id_)
            self.cluster.exited(self.cluster.state.jobs[id_], run, code, self.now)
            self.carry_out()

    @rule(name=st.sampled_from(["h1", "h2", "h3"]), closed=st.one_of(st.none(), st.sampled_from(Closed)))
    def close(self, name: str, closed: Closed | None) -> None:
        self.cluster.set_host(name, closed, self.now)
        self.carry_out()

    @rule()
    def hear(self) -> None:
        self.deaf = not self.deaf

    @invariant()
    def is_sound(self) -> None:
        if not hasattr(self, "cluster"):
            return
        state = self.cluster.state
        sound(self.cluster)
        for id_, run in self.alive.items():
            assert state.jobs[id_].run == run and state.jobs[id_].started, "no process without a job"
        found = usage(state)
        assert (found.run + found.reserved <= state.hosts.slots).all()
        free = sum(window.slots for window in windows(state, self.now))
        assert (free <= state.free).all()

    def teardown(self) -> None:
        """Once nothing is closed, suspended or deaf any more, every job ends."""
        if not hasattr(self, "cluster"):
            return
        self.deaf = False
        for name in ("h1", "h2", "h3"):
            self.close(name, None)
        while left := [job for job in self.cluster.state.active.values() if not self.too_large(job)]:
            assert self.now < 1e5, left
            for job in list(self.cluster.state.active.values()):
                if job.state in (State.PSUSP, State.USUSP):
                    self.cluster.resume(job, self.now)
            self.carry_out()
            for _ in range(len(self.alive)):
                self.leave(0, 0)
            self.wait(700.0)

    def too_large(self, job: Job) -> bool:
        """Whether a job waits for ever: it asks for more than its queue may use."""
        most = {"high": 8, "mid": 12, "low": 10}[job.request.queue]
        return not job.started and job.request.demand.slots > most


Lives.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestLives = Lives.TestCase
