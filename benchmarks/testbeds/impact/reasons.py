"""Why a main job started later with bftrainer than without: from both logs, and from other jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.testbeds.impact.differences import AGAIN, MODES, WITH, WITHOUT, JobWaits, Pair
from benchmarks.testbeds.impact.events import Event, What
from benchmarks.testbeds.runs import MainRun

SLOW_S = 0.5
"""Seconds from which on a step is named: a submission, a launch, the time until nodes are vacated."""
JUST_S = 2.0
"""A job that ended so shortly before another began may have kept it waiting."""


class Reason(StrEnum):
    """Why a job was late. The first of several counts."""

    REQUEUED = "requeued"
    OVERTAKEN = "its nodes went to other main jobs"
    BEHIND = "behind a main job that was late"
    PREEMPTED = "preempted by the batch system"
    VACATED_LATE = "vacated late"
    BUSY = "batch system busy"
    LAUNCH = "slow launch"
    UNKNOWN = "not explained"


@dataclass(frozen=True, slots=True)
class Why:
    """One reason, and what was seen of it; moments are seconds after the job could start."""

    reason: Reason
    words: str


@dataclass(frozen=True, slots=True)
class Late:
    """A job that started more than a second later than in both runs without, and why."""

    job: JobWaits
    run: MainRun
    why: tuple[Why, ...]


@dataclass(frozen=True, slots=True)
class _Wait:
    """The wait of a job in the run with bftrainer; `events` are those of this time."""

    run: MainRun
    begin: float
    end: float
    events: tuple[Event, ...]

    def own(self, what: What) -> list[Event]:
        """Events of a kind that name the job."""
        return [
            event
            for event in self.events
            if event.what is what and any(j.is_of(self.run) for j in event.jobs)
        ]

    def at(self, moment: float) -> str:
        """A moment in words."""
        return f"{moment - self.begin:+.1f} s"


def explain(pair: Pair, runs: Mapping[str, Sequence[MainRun]], events: Sequence[Event]) -> list[Late]:
    """Return the late jobs of a pair, the latest first, each with at least one reason.

    `runs` are the main jobs of its three runs, `events` those of the run with bftrainer, in order of time.
    """
    by_key = {(run.number, run.task): run for run in runs[WITH]}
    earlier = [_order(runs[mode]) for mode in (WITHOUT, AGAIN)]
    late = {(job.number, job.task): job for job in pair.late()}
    found = []
    for key, job in late.items():
        run = by_key[key]
        wait = _wait(run, events)
        why = (*_of_logs(wait), *_of_others(wait, runs[WITH], earlier, late, events))
        order = list(Reason)
        found.append(
            Late(job, run, tuple(sorted(why, key=lambda w: order.index(w.reason))) or _unknown(wait))
        )
    return found


def timeline(runs: Mapping[str, Sequence[MainRun]], events: Sequence[Event]) -> list[str]:
    """Return a line for each job: what it waited in each run, and what happened in the run with bftrainer
    in this time, in seconds after the job could start."""
    waited = {mode: {(run.number, run.task): run.wait_s for run in runs[mode]} for mode in MODES}
    found = []
    for run in runs[WITH]:
        wait = _wait(run, events)
        seconds = (waited[mode].get((run.number, run.task)) for mode in MODES)
        cells = ["-" if value is None else f"{value:.2f}" for value in seconds]
        said = [f"{wait.at(e.time)} {e.what}" for e in wait.events if any(j.is_of(run) for j in e.jobs)]
        found.append(f"main-{run.number}.{run.task} {run.kind}: {' / '.join(cells)} s; {', '.join(said)}")
    return found


def requeued(events: Sequence[Event], runs: Sequence[MainRun]) -> list[MainRun]:
    """Return the main jobs that were put back into the queue, or that started more than once."""
    jobs = [job for event in events if event.what is What.REQUEUED for job in event.jobs]
    return [run for run in runs if run.starts > 1 or any(job.is_of(run) for job in jobs)]


def _wait(run: MainRun, events: Sequence[Event]) -> _Wait:
    """From when a job could start until it did."""
    begin = run.submitted if run.eligible is None else run.eligible
    end = begin if run.started is None else run.started
    return _Wait(run, begin, end, tuple(e for e in events if begin - SLOW_S <= e.time <= end))


def _of_logs(wait: _Wait) -> Iterator[Why]:
    """Yield what the batch system and the daemon said of the job."""
    for event in wait.own(What.REQUEUED)[:1]:
        failed = wait.own(What.DEALLOCATED)
        words = f"{wait.at(event.time)}: {(failed or [event])[0].text}"
        yield Why(Reason.REQUEUED, words)
    if preempted := wait.own(What.PREEMPTED):
        words = f"{wait.at(preempted[0].time)}: {len(preempted)} pilots"
        if failed := wait.own(What.START_FAILED):
            words += f"; its start failed {len(failed)} times: {failed[0].text}"
        yield Why(Reason.PREEMPTED, words)
    vacated = [event for event in wait.own(What.VACATED) if event.time - wait.begin > SLOW_S]
    if vacated:
        parts = [
            f"{wait.at(event.time)} {event.count} nodes, decided {wait.at(event.time - event.seconds)}"
            for event in vacated
        ]
        yield Why(Reason.VACATED_LATE, "; ".join(parts))
    yield from _of_batch_system(wait)


def _of_batch_system(wait: _Wait) -> Iterator[Why]:
    """Yield what the batch system itself took long for."""
    run = wait.run
    if run.accepted is not None and run.accepted - run.submitted > SLOW_S:
        yield Why(Reason.BUSY, f"submitting it took {run.accepted - run.submitted:.1f} s")
    for event in wait.events:
        if event.what in (What.BUSY, What.POLL_FAILED):
            yield Why(Reason.BUSY, f"{wait.at(event.time)}: {event.text}")
            break
    if (started := wait.own(What.STARTED)) and wait.end - started[-1].time > SLOW_S:
        yield Why(
            Reason.LAUNCH, f"it was started {wait.at(started[-1].time)}, its script {wait.at(wait.end)}"
        )


def _order(runs: Sequence[MainRun]) -> dict[tuple[int, int], float]:
    """Return when each job started."""
    return {(run.number, run.task): run.started for run in runs if run.started is not None}


def _of_others(
    wait: _Wait,
    runs: Sequence[MainRun],
    earlier: Sequence[Mapping[tuple[int, int], float]],
    late: Mapping[tuple[int, int], JobWaits],
    events: Sequence[Event],
) -> Iterator[Why]:
    """Yield which main jobs had the nodes that this one waited for."""
    own, wanted = (wait.run.number, wait.run.task), _nodes(wait.run, events)
    for event in wait.own(What.VACATED):
        wanted |= event.nodes
    overtaking, ahead = [], []
    for other in runs:
        key = (other.number, other.task)
        if other.number == wait.run.number or other.started is None or other.started >= wait.end:
            continue
        if wanted.isdisjoint(_nodes(other, events)):
            continue
        if other.started > wait.begin and all(_after(starts, key, own) for starts in earlier):
            overtaking.append(f"main-{other.number}")
        over = other.ended if other.ended is not None else other.started + other.run_s
        if key in late and wait.end - JUST_S < over <= wait.end:
            ahead.append(f"main-{other.number} ({late[key].beyond:+.1f} s)")
    if overtaking:
        yield Why(Reason.OVERTAKEN, f"only with bftrainer before it: {_names(overtaking)}")
    if ahead:
        yield Why(Reason.BEHIND, f"just ended: {_names(ahead)}")


def _nodes(run: MainRun, events: Sequence[Event]) -> frozenset[str]:
    """The nodes that a job started on."""
    started = (e.nodes for e in events if e.what is What.STARTED and any(job.is_of(run) for job in e.jobs))
    return frozenset().union(*started)


def _after(starts: Mapping[tuple[int, int], float], key: tuple[int, int], own: tuple[int, int]) -> bool:
    """Return whether the first job started after the second in a run."""
    return starts.get(key, float("inf")) > starts.get(own, float("-inf"))


def _names(found: Sequence[str]) -> str:
    several = list(dict.fromkeys(found))
    return ", ".join(several[:5]) + (f" and {len(several) - 5} more" if len(several) > 5 else "")


def _unknown(wait: _Wait) -> tuple[Why, ...]:
    """Lines of the logs about a job whose reason is unknown."""
    said = [
        f"{wait.at(event.time)} {event.text}"
        for event in wait.events
        if any(j.is_of(wait.run) for j in event.jobs)
    ]
    return (Why(Reason.UNKNOWN, "; ".join(said) or "neither log has a line about it"),)
