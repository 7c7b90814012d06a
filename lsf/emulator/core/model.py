"""The parts of the emulated LSF: hosts, queues, and jobs' demands. Frozen; times in Unix s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """The state of a job, as bjobs prints it."""

    PEND = "PEND"
    PSUSP = "PSUSP"
    RUN = "RUN"
    USUSP = "USUSP"
    SSUSP = "SSUSP"
    DONE = "DONE"
    EXIT = "EXIT"


WAITING = frozenset({State.PEND, State.PSUSP})
STARTED = frozenset({State.RUN, State.USUSP, State.SSUSP})
"""The job has been dispatched and has not ended: its processes exist."""
ENDED = frozenset({State.DONE, State.EXIT})


class OnPreempt(StrEnum):
    """Fates of a running job whose slots a job of a preemptive queue takes."""

    SUSPEND = "suspend"
    """SSUSP: it gives its slots back and keeps its memory; it goes on when they are free again."""
    REQUEUE = "requeue"
    """It is ended and waits again, with the same id."""
    KILL = "kill"


class Closed(StrEnum):
    """Why a host takes no jobs."""

    ADMIN = "closed_Adm"
    UNAVAILABLE = "unavail"
    UNREACHABLE = "unreach"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host. `launch`: scripts of jobs start there, and no job asks for its slots by number."""

    name: str
    slots: int = 42
    gpus: int = 6
    gpu_model: str = "TeslaV100_SXM2_16GB"
    launch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue.

    Attributes:
        priority: Jobs of a higher one come first.
        preempts: The queues whose running jobs have to make room for jobs of this one.
        on_preempt: What happens to jobs of this queue then.
        guaranteed_s: Seconds after its start for which no job of this queue is preempted.
        backfill: Its jobs may use slots that are reserved for others, if their run limit ends in time.
        run_limit_s: The longest run limit of any job, and that of a job that asks for none; 0: unlimited.
        most_hosts: A job that asks for more is refused; 0: any number.
        most_slots: Slots of all running jobs, at most (MAX); 0: any number.
        most_slots_per_user: JL/U; 0: any number.
        most_pending_per_user: More are refused; 0: any number.
        requeue_codes: A job that exits with one of these waits again.
        exclusive: Whether -x is allowed.
        administrators: Users who may end and change any job of this queue.
        open: Whether jobs may be submitted.
    """

    name: str
    priority: int = 30
    preempts: tuple[str, ...] = ()
    on_preempt: OnPreempt = OnPreempt.SUSPEND
    guaranteed_s: float = 0.0
    backfill: bool = True
    run_limit_s: float = 0.0
    most_hosts: int = 0
    most_slots: int = 0
    most_slots_per_user: int = 0
    most_pending_per_user: int = 0
    requeue_codes: frozenset[int] = frozenset()
    exclusive: bool = True
    administrators: frozenset[str] = frozenset()
    open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The slots that a job asks for.

    Attributes:
        slots: How many, those of a launch host aside.
        per_host: Exact number on each host but the last (`span[ptile=n]`); 0: as they come.
        one_host: All on one host (`span[hosts=1]`).
        whole: Whole hosts that nobody else uses.
        only: The hosts that may be used (`-m`); None: any.
        never: Hosts that may not.
        launch: Whether the job also gets a slot of a launch host.
        gpus: On each host (-gpu); no other job has them meanwhile, as with j_exclusive=yes.
    """

    slots: int
    per_host: int = 0
    one_host: bool = False
    whole: bool = False
    only: frozenset[str] | None = None
    never: frozenset[str] = frozenset()
    launch: bool = False
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A job as it is submitted.

    Attributes:
        limit_s: Its run limit (-W); 0: the queue's.
        words: The command, for a real job.
        script: The text of its job script, "" for a command of words.
        shown: The command as LSF shows it.
        duration_s: How long a simulated job runs; None: it is a real one.
        deaf: A simulated job that does not end at any signal but SIGKILL.
        held: It is submitted suspended (-H).
        rerunnable: It is started again where its host fails, and after a preemption that requeues.
        warning: The signal that it is sent, and how long (s) before its run limit; None: none.
        default_queue: No queue was named.
        exclusive: -x was given; easy: -nnodes was.
        requirement: The text of -R.
        estimate_s: How long its user thinks that it runs (-We); 0: not said.
    """

    demand: Demand
    user: str
    queue: str
    limit_s: float = 0.0
    name: str = ""
    project: str = "default"
    words: tuple[str, ...] = ()
    script: str = ""
    shown: str = ""
    cwd: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    output: str = ""
    error: str = ""
    overwrite: bool = False
    from_host: str = "login1"
    duration_s: float | None = None
    deaf: bool = False
    held: bool = False
    rerunnable: bool = True
    warning: tuple[int, float] | None = None
    default_queue: bool = False
    exclusive: bool = False
    easy: bool = False
    uid: int = 0
    requirement: str = ""
    group: str = ""
    estimate_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The parts of an emulated LSF, and its parameters.

    Attributes:
        default_queue: The queue of jobs that name none.
        terminate_interval_s: JOB_TERMINATE_INTERVAL: from one signal of bkill to the next.
        limit_grace_s: How long a job that has reached its run limit may take to end after SIGUSR2.
        clean_s: CLEAN_PERIOD: seconds that finished jobs are listed.
        cycle_s: How often jobs are dispatched; 0: whenever something has changed.
        kill_parallel: LSB_USE_SEQUENTIAL_SIGNAL=N: bkill sends parallel jobs SIGKILL alone.
        report_s: Seconds after its end for which a job still counts as running.
        reserve: Whether slots are reserved for the first job that has to wait.
        closes_at: No job runs past this time, as before a maintenance; 0: there is none.
        planner: Whether the planner writes its file.
        job_priority: What bjobs -l shows as each job's; 0: nothing.
    """

    hosts: tuple[Host, ...]
    queues: tuple[Queue, ...]
    default_queue: str
    name: str = "emulated"
    terminate_interval_s: float = 10.0
    limit_grace_s: float = 600.0
    clean_s: float = 3600.0
    cycle_s: float = 0.0
    kill_parallel: bool = False
    report_s: float = 0.0
    reserve: bool = True
    closes_at: float = 0.0
    planner: bool = False
    job_priority: int = 0
    first_id: int = 101


class SubmitError(Exception):
    """LSF refuses a job; the text is what stands before `. Job not submitted.`"""
