"""A study while it runs: its trials, and how far each has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from bftrainer.messages.files.studies import NO_WARM_START_FROM
from bftrainer.search.brackets import Bracket, bracket_of, brackets
from bftrainer.search.course import PackedCourse
from bftrainer.search.files.space import Params, PointReader
from bftrainer.search.study import StudySpec

NO_VALUE = "no value"
"""The status word of a trial whose trainer is completed, and which reported no metric."""
COURSE = 64
"""Points of a trial's course that are kept: more are thinned out."""
MOST_LEARNT = 30_000
"""Values of parameters that TPE looks at for one trial, in 0.1 s: of more trials the best quarter, and the
latest."""


class TrialStatus(StrEnum):
    """Statuses of a trial. The last four are final."""

    WAITING = "waiting"  # has parameters, and no trainer
    RUNNING = "running"  # has a trainer, whether or not that one has nodes
    PAUSED = "paused"  # has reached a rung; the others of its bracket decide what follows
    COMPLETED = "completed"  # has had the study's whole budget
    STOPPED = "stopped"  # ended early: others were better
    FAILED = "failed"  # its program failed, more often than it is tried again
    CANCELLED = "cancelled"  # its user ended its trainer, or the study

    @property
    def final(self) -> bool:
        """Return whether the trial has ended."""
        return self in (
            TrialStatus.COMPLETED,
            TrialStatus.STOPPED,
            TrialStatus.FAILED,
            TrialStatus.CANCELLED,
        )


class StudyStatus(StrEnum):
    """Statuses of a study. The last three are final."""

    RUNNING = "running"
    PAUSED = "paused"  # its user has paused it: its trials keep their checkpoints
    COMPLETED = "completed"  # every trial has ended
    ENDED = "ended"  # its deadline or its budget of node-hours has come, or its first trials have failed
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Return whether the study has ended."""
        return self in (StudyStatus.COMPLETED, StudyStatus.ENDED, StudyStatus.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RungResult:
    """The value of the metric with which a trial has ended a rung, after `samples` samples."""

    rung: int
    samples: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One trial.

    Attributes:
        rung: The rung that it is on, or that it has reached while it is paused.
        run: How many trainers it has had; the last one is its present one.
        trainer: The number of that trainer, which may have ended; None: it has not been submitted yet.
        failures: How many of its trainers have failed.
        samples, value: Its samples so far, and the metric then.
        results: Results of the rungs that it has ended.
        course: Samples and values on the way, thinned out.
        measured: Whether its script reports the metric, NaN included; None: not known yet.
        figures: Figures that it reports in place of the metric, as far as known.
        slip: The one of them that is most likely the metric, with another name; empty if none is.
        misnamed: One of them differs from the metric as a slip of the pen does.
        began_at, ended_at: When its first trainer was to start, and when the trial ended.
        stopping: Its trainer is being ended because of this status, which the trial has then.
        reason: Why it has failed, or ended early.
    """

    number: int
    params: Params
    status: TrialStatus = TrialStatus.WAITING
    rung: int = 0
    run: int = 0
    trainer: int | None = None
    failures: int = 0
    samples: int = 0
    value: float | None = None
    results: tuple[RungResult, ...] = ()
    course: Sequence[tuple[int, float]] = ()
    measured: bool | None = None
    figures: tuple[str, ...] = ()
    slip: str = ""
    misnamed: bool = False
    began_at: float | None = None
    ended_at: float | None = None
    stopping: TrialStatus | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.course, PackedCourse):
            object.__setattr__(self, "course", PackedCourse(self.course) if self.course else ())

    @property
    def word(self) -> str:
        """The word that it is counted as: a trial that is done without a value differs from a failed one."""
        done = self.status is TrialStatus.FAILED and self.trainer is not None and not self.failures
        return NO_VALUE if done else self.status.value

    def at(self, samples: int) -> float | None:
        """Return the last value at or before `samples`; None if there is none."""
        return next((value for came, value in reversed(self.course) if came <= samples), None)

    def reported(self, samples: int, value: float) -> Trial:
        """The trial with one more point of its course. After a restart from a checkpoint, what comes again
        takes the place of what was."""
        kept = tuple(point for point in self.course if point[0] < samples)
        course = (*kept, (samples, value))
        if len(course) > COURSE:
            course = (*course[1:-1:2], course[-1])
        return replace(self, samples=max(self.samples, samples), value=value, course=course)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFile:
    """A study file's text, with its name and the folder that relative paths start from."""

    text: str
    file: str
    base: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best trial of a study, and its value after `samples` samples.

    `short_of`: it has ended no rung; the value is its last report on the way to one of that length.
    """

    trial: Trial
    value: float
    samples: int
    short_of: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study at one moment.

    Attributes:
        room: How many trials may have a trainer, where that follows from the pool.
        allowed: How many may have one in any case, beside all others of its user; None: any number.
        asked: The parameters of one more trial are being chosen.
        used_node_s: The node-seconds that its trainers have held.
        points: Known points, of which `tried` are with trials: the next trials try the others.
        older: The number of the study from whose results its sampler learns.
        record: The best result so far, at whatever rung.
        since_record: Results since then.
        trial_bytes: The memory of one of its trials, at most.
    """

    id: int
    spec: StudySpec
    user: str
    submitted_at: float
    status: StudyStatus = StudyStatus.RUNNING
    reason: str = ""
    ended_at: float | None = None
    trials: Mapping[int, Trial] = field(default_factory=dict)
    brackets: tuple[Bracket, ...] = ()
    asked: bool = False
    room: int = 1
    allowed: int | None = None
    used_node_s: float = 0.0
    points: tuple[Params, ...] = ()
    tried: int = 0
    older: int | None = None
    record: float | None = None
    since_record: int = 0
    source: StudyFile = StudyFile(text="", file="", base="/")
    trial_bytes: int = 0

    @classmethod
    def new(
        cls, id_: int, spec: StudySpec, user: str, submitted_at: float, source: StudyFile | None = None
    ) -> Study:
        """A study that has just been submitted."""
        own = brackets(spec)
        new = cls(id=id_, spec=spec, user=user, submitted_at=submitted_at, brackets=own, points=spec.points)
        return new if source is None else replace(new, source=source)

    @property
    def bytes(self) -> int:
        """The memory of all its trials, at most."""
        return self.spec.trials * self.trial_bytes

    @property
    def untried(self) -> int:
        """Return how many known points no trial has yet."""
        return len(self.points) - self.tried

    def bracket(self, number: int) -> Bracket:
        """The bracket of a trial."""
        return bracket_of(self.brackets, number)

    def group(self, number: int) -> int:
        """Return which of the brackets a trial is in, from 0 on."""
        return self.brackets.index(self.bracket(number))

    def samples(self, trial: Trial) -> int:
        """At how many samples the rung of a trial ends."""
        return self.bracket(trial.number).budgets[trial.rung]

    def put(self, *trials: Trial) -> Study:
        """The study with these trials in place of those with their numbers."""
        return replace(self, trials={**self.trials, **{t.number: t for t in trials}})

    def known_to(self, spec: StudySpec) -> tuple[Trial, ...]:
        """Its trials with results, as the sampler of another study learns from them: those of which it has
        every parameter, with a value that it may have there. Their numbers are below 0. Of many,
        those that it would look at: a daemon keeps them for as long as that study runs.

        Raises:
            ValueError: their results are no results of that study, or none fits.
        """
        for what, here, there in (
            ("metric", self.spec.metric, spec.metric),
            ("direction", self.spec.maximize, spec.maximize),
        ):
            if here != there:
                raise ValueError(NO_WARM_START_FROM.say(name=self.spec.name, why=f"has another {what}"))
        found, reader = [], PointReader(spec.space)
        for trial in self.trials.values():
            values = dict(trial.params)
            try:
                own = {p.name: values[p.name] for p in spec.space if p.applies(values)}
                params = reader.read(own)
            except (KeyError, ValueError):
                continue
            if trial.results:
                bare = replace(trial, course=(), figures=(), reason="", results=trial.results[-1:])
                found.append(replace(bare, number=-1 - trial.number, params=params))
        if not found:
            why = "has no result with all parameters of this space within their bounds"
            raise ValueError(NO_WARM_START_FROM.say(name=self.spec.name, why=why))
        return worth_learning(spec, found)

    def best(self) -> Best | None:
        """The trial with the best result of those that came furthest; where none has a result, as when the
        study's time was over before, the one whose last report is best. One whose last report is as good as
        the study's target goes before all. None: no trial has reported."""
        found = [
            Best(trial=t, value=t.results[-1].value, samples=t.results[-1].samples, short_of=None)
            for t in self.trials.values()
            if t.results
        ] or [
            Best(trial=t, value=t.course[-1][1], samples=t.course[-1][0], short_of=self.samples(t))
            for t in self.trials.values()
            if t.course
        ]

        target = self.spec.target
        if target is not None:
            last = ((t, *t.course[-1]) for t in self.trials.values() if t.course)
            at_target = [
                Best(trial=t, value=value, samples=samples, short_of=None if t.results else self.samples(t))
                for t, samples, value in last
                if not self.spec.better(target, value)
            ]
            found = at_target or found

        def order(own: Best) -> tuple[int, float, int, int]:
            reached = own.samples if own.short_of is None else 0
            return -reached, self.spec.order(own.value), -own.samples, own.trial.number

        return min(found, key=order, default=None)


def most_learnt(spec: StudySpec) -> int:
    """From how many trials TPE learns."""
    return max(1, MOST_LEARNT // len(spec.space))


def worth_learning(spec: StudySpec, trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """The trials from which TPE learns, by number: of many that have results, the best and the latest."""
    most, known = most_learnt(spec), {trial.number: trial for trial in trials}
    best = sorted(known.values(), key=lambda t: (-t.results[-1].samples, spec.order(t.results[-1].value)))
    numbers = [trial.number for trial in best[: most // 4]]
    latest = sorted(set(known) - set(numbers), reverse=True)[: most - len(numbers)]
    return tuple(known[number] for number in sorted([*numbers, *latest]))
