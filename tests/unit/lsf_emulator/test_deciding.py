"""Placing and dispatching in the emulated LSF, against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lsf.emulator.core.cluster import Cluster
from lsf.emulator.core.model import Demand, Queue, Request, State
from lsf.emulator.core.placing import Hosts, place
from tests.support.lsf_clusters import hosts, site, sound, whole

SLOTS = 4
DEMANDS = st.builds(
    lambda slots, per_host, one_host, whole: Demand(
        slots=min(slots, SLOTS) if one_host else slots,
        per_host=0 if one_host else per_host,
        one_host=one_host,
        whole=whole,
    ),
    st.integers(1, 10),
    st.integers(0, SLOTS),
    st.booleans(),
    st.booleans(),
)


def possible(free: list[int], demand: Demand) -> bool:
    """Whether any assignment of slots to hosts is what the job asks for: all are tried."""
    for given_ in product(range(SLOTS + 1), repeat=len(free)):
        used = sorted((count for count in given_ if count), reverse=True)
        if sum(used) != demand.slots or any(g > f for g, f in zip(given_, free, strict=True)):
            continue
        if demand.whole and any(g and f < SLOTS for g, f in zip(given_, free, strict=True)):
            continue
        if demand.one_host and len(used) != 1:
            continue
        if demand.per_host:
            full, rest = divmod(demand.slots, demand.per_host)
            if used != sorted([demand.per_host] * full + ([rest] if rest else []), reverse=True):
                continue
        return True
    return False


@given(st.lists(st.integers(0, SLOTS), min_size=1, max_size=4), DEMANDS, st.integers(0, 15))
def test_a_job_is_placed_exactly_if_it_can_be(free: list[int], demand: Demand, late: int) -> None:
    cluster = Hosts(hosts(len(free), SLOTS))
    last = np.array([bool(late >> at & 1) for at in range(len(free))])
    found = place(cluster, np.array(free), demand, last)
    assert (found is not None) == possible(free, demand)
    if found is not None:
        assert len(set(found.hosts.tolist())) == len(found.hosts)
        assert found.slots.sum() == demand.slots
        assert (found.taken <= np.array(free)[found.hosts]).all()
        if demand.whole:
            assert (found.taken == SLOTS).all()


Job = tuple[float, int, float, float]
"""(submitted, hosts, run time, limit)"""
JOBS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 4), st.integers(1, 9), st.integers(0, 6)).map(
        lambda t: (float(t[0]), t[1], float(t[2]), float(t[2] + t[3]))
    ),
    min_size=1,
    max_size=12,
).map(lambda jobs: sorted(jobs, key=lambda job: job[0]))


def played(jobs: list[Job], size: int, *, backfill: bool = True) -> Cluster:
    cluster = Cluster(site(size, queues=(Queue(name="batch", backfill=backfill),)))
    cluster.feed((at, whole(min(n, size), run, limit)) for at, n, run, limit in jobs)
    while (time := cluster.next_time()) is not None and time < 1000:
        cluster.advance(time)
        sound(cluster)
    return cluster


def easy(jobs: list[Job], size: int) -> list[float]:
    """When each job starts under EASY, by counting hosts, moment by moment: the textbook's algorithm."""
    starts: dict[int, float] = {}
    for tick in range(1000):
        now, free = float(tick), size
        running = [n for n, at in starts.items() if now < at + jobs[n][2]]
        free -= sum(min(jobs[n][1], size) for n in running)
        queue = [n for n, job in enumerate(jobs) if job[0] <= now and n not in starts]
        while queue and min(jobs[queue[0]][1], size) <= free:
            starts[queue[0]] = now
            running.append(queue[0])
            free -= min(jobs[queue.pop(0)][1], size)
        if not queue:
            continue
        room, shadow = free, now
        for end, n in sorted((starts[n] + jobs[n][3], n) for n in running):
            if room >= min(jobs[queue[0]][1], size) and end > shadow:
                break
            room, shadow = room + min(jobs[n][1], size), end
        extra = room - min(jobs[queue[0]][1], size)
        for n in queue[1:]:
            count = min(jobs[n][1], size)
            if count <= free and (now + jobs[n][3] <= shadow or count <= extra):
                extra -= 0 if now + jobs[n][3] <= shadow else count
                free -= count
                starts[n] = now
    return [starts[n] for n in range(len(jobs))]


@settings(max_examples=150)
@given(JOBS, st.integers(1, 6))
def test_jobs_on_whole_hosts_start_when_easy_says_so(jobs: list[Job], size: int) -> None:
    cluster = played(jobs, size)
    by_id = sorted(cluster.state.jobs.values(), key=lambda job: job.id)
    assert [job.start for job in by_id] == easy(jobs, size)


@given(JOBS, st.integers(1, 6))
def test_the_promise_to_the_first_waiting_job_is_kept(jobs: list[Job], size: int) -> None:
    cluster = Cluster(site(size, queues=(Queue(name="batch"),)))
    cluster.feed((at, whole(min(n, size), run, limit)) for at, n, run, limit in jobs)
    promised: dict[int, float] = {}
    while (time := cluster.next_time()) is not None and time < 1000:
        cluster.advance(time)
        kept = cluster.state.reservation
        if kept is not None:
            assert kept.start <= promised.get(kept.job, kept.start), "it is never put off"
            promised[kept.job] = kept.start
    for id_, start in promised.items():
        found = cluster.state.jobs[id_].start
        assert found is not None and found <= start


MIXED = st.lists(
    st.tuples(st.integers(0, 20), DEMANDS, st.integers(1, 9), st.integers(0, 6), st.integers(0, 2)),
    min_size=1,
    max_size=10,
)
QUEUES = (
    Queue(name="high", priority=50, preempts=("low", "kill")),
    Queue(name="low", priority=20),
    Queue(name="kill", priority=10, guaranteed_s=3),
)


@settings(max_examples=150)
@given(MIXED, st.integers(1, 3), st.sampled_from([0.0, 0.7]), st.sampled_from(["suspend", "requeue", "kill"]))
def test_no_host_is_overcommitted_and_every_job_ends(
    jobs: list[tuple[int, Demand, int, int, int]], size: int, report_s: float, how: str
) -> None:
    from dataclasses import replace

    from lsf.emulator.core.model import OnPreempt, SubmitError

    queues = (QUEUES[0], QUEUES[1], replace(QUEUES[2], on_preempt=OnPreempt(how)))
    cluster = Cluster(site(size, slots=SLOTS, queues=queues, report_s=report_s))
    taken = []
    for at, demand, run, more, queue in sorted(jobs, key=lambda job: job[0]):
        name = queues[queue].name
        wanted = Request(demand=demand, user="u", queue=name, duration_s=run, limit_s=run + more)
        try:
            taken.append(cluster.submit(wanted, at))
        except SubmitError:
            continue
        sound(cluster)
    while (time := cluster.next_time()) is not None and time < 2000:
        cluster.advance(time)
        sound(cluster)
    for job in taken:
        assert job.ended, job
        if not job.why:
            assert job.state is State.DONE and job.ran(time or 0) >= (job.request.duration_s or 0) - 1e-6
        else:
            assert job.why == "TERM_PREEMPT" and how == "kill" and job.request.queue == "kill"


def slots(count: int, run_s: float, limit_s: float, queue: str = "high") -> Request:
    return Request(demand=Demand(slots=count), user="u", queue=queue, duration_s=run_s, limit_s=limit_s)


def test_what_the_first_waiting_job_does_not_need_is_given_away_once() -> None:
    cluster = Cluster(site(1, slots=4, queues=QUEUES, cycle_s=1.0))
    for wanted in (slots(2, 10, 10), slots(3, 10, 10), slots(1, 50, 50), slots(1, 50, 50)):
        cluster.submit(wanted, 0.5)
    cluster.advance(1.0)  # all in one turn
    first, waiting, long, longer = cluster.state.jobs.values()
    assert [job.start for job in (first, waiting, long, longer)] == [1.0, None, 1.0, None]
    cluster.advance(12.0)
    assert waiting.start == 12.0 and longer.start is None


def test_the_latest_jobs_of_the_lowest_queue_make_room() -> None:
    cluster = Cluster(site(1, slots=4, queues=QUEUES))
    for at, queue in enumerate(("low", "kill", "kill", "low")):
        cluster.submit(slots(1, 100, 100, queue), float(at))
    early, kill, later, last = cluster.state.jobs.values()
    cluster.submit(slots(1, 1, 1), 10.0)
    assert [job.state for job in (early, kill, later, last)] == [
        *(State.RUN, State.RUN, State.SSUSP, State.RUN)
    ]
    cluster.submit(slots(3, 1, 1), 10.0)
    assert [job.state for job in (early, kill, later, last)] == [
        *(State.SSUSP, State.SSUSP, State.SSUSP, State.SSUSP)
    ]


def test_a_job_that_its_user_ends_does_not_wait_again_whatever_its_exit_code() -> None:
    queue = Queue(name="q", requeue_codes=frozenset({99}))
    cluster = Cluster(site(1, queues=(queue,)))
    wanted = Request(demand=Demand(slots=1), user="u", queue="q", words=("x",))
    job = cluster.submit(wanted, 0.0)
    cluster.exited(job, 0, 99, 1.0)
    assert (job.state, job.run, job.start) == (State.RUN, 1, 1.0)
    cluster.kill(job, 2.0)
    cluster.exited(job, 1, 99, 2.0)
    assert (job.state, job.code) == (State.EXIT, 99)
