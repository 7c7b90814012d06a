"""How long main jobs are found to have waited, and whether nodes of ours can be the reason."""

from __future__ import annotations

import math
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model.machine import Claim, Pilot, Snapshot
from bftrainer.model.main_jobs import Affected, MainJob, MainStart
from bftrainer.nodes.main_jobs import IN_VAIN_S, MainJobs

NODE = frozenset({"n1"})


def waits(job: str = "17", submitted: float | None = None, **more: object) -> MainJob:
    return MainJob(job=job, nodes=1, submitted=submitted, **more)  # type: ignore[arg-type]


def runs(job: str, started: float, submitted: float, on: Collection[str] = NODE, r: float = 0.0) -> MainJob:
    nodes = frozenset(on)
    return MainJob(job=job, nodes=len(nodes), submitted=submitted, started=started, on=nodes, rounded_s=r)


class Polls:
    """The polls of a test, one after the other."""

    def __init__(self) -> None:
        self.jobs = MainJobs()
        self.at(0.0)

    def at(
        self,
        time: float,
        *main: MainJob,
        held: Collection[str] = (),
        claims: Collection[str] = (),
        waiting: Collection[str] = (),
        pilots: Collection[str] = (),
    ) -> list[MainStart]:
        could = {job.job for job in main if not job.on}
        snapshot = Snapshot(
            time=time,
            nodes=(),
            main=main,
            claims=tuple(Claim(job=job, nodes=NODE, count=1) for job in claims),
            waiting=frozenset({*waiting, *claims, *could}),
            pilots=tuple(Pilot(tag=node, node=node) for node in pilots),
        )
        return self.jobs.observe(snapshot, held)


def test_a_job_that_starts_on_a_node_that_is_not_ours_is_not_affected() -> None:
    polls = Polls()
    (start,) = polls.at(1.0, runs("17", 0.8, 0.6), held={"n2"})
    assert start.affected is Affected.NO
    assert start.wait_s == pytest.approx(0.2)
    assert start.fresh
    assert polls.at(2.0, runs("17", 0.8, 0.6)) == [], "it is told once"


def test_a_job_that_nodes_are_given_back_for_waits_from_its_submission() -> None:
    polls = Polls()
    polls.at(1.0, held=NODE)
    polls.at(2.0, waits(submitted=1.5), claims={"17"}, held=NODE)
    polls.jobs.given_back(["17"], 0.25)
    polls.at(2.5, waiting={"17"}, held=NODE)  # the node is being cleared
    (start,) = polls.at(3.0, runs("17", 2.8, 1.5))
    assert start.affected is Affected.CLAIMED
    assert start.wait_s == pytest.approx(1.3)
    assert (start.given, start.vacate_s) == (1, 0.25)


def test_what_a_job_waits_for_others_is_not_counted() -> None:
    polls = Polls()
    polls.at(1.0, waiting={"17"}, held=NODE)
    polls.at(500.0, waiting={"17"}, held=NODE)
    polls.at(500.5, waits(submitted=0.5), claims={"17"}, held=NODE)
    (start,) = polls.at(501.5, runs("17", 501.0, 0.5))
    assert start.wait_s == pytest.approx(1.0), "since the last poll at which it waited for others"
    assert start.queued_s == pytest.approx(500.5)
    assert not start.fresh


def test_a_job_on_a_node_that_was_ours_a_moment_before_has_taken_it() -> None:
    polls = Polls()
    polls.at(1.0, held=NODE)
    (start,) = polls.at(2.0, runs("17", 1.9, 1.2), held=NODE)
    assert start.affected is Affected.TAKEN


def test_a_job_that_preempts_pilots_before_a_poll_sees_it_wait_has_taken_their_node() -> None:
    polls = Polls()
    polls.at(1.0, held=NODE, pilots=NODE)
    polls.at(2.0, waits(submitted=1.5), waiting={"17"})  # the batch system has ended the pilot meanwhile
    (start,) = polls.at(3.0, runs("17", 2.5, 1.5))
    assert start.affected is Affected.TAKEN
    polls.at(4.0, held=NODE, pilots=NODE)
    polls.at(5.0)  # given back for nobody
    (start,) = polls.at(6.0, runs("18", 5.8, 5.5))
    assert start.affected is Affected.NO


@pytest.mark.parametrize("gone", [[], ["n1:1"], ["n2:0"]])
def test_a_job_beside_pilots_of_single_gpus_has_taken_one_if_a_pilot_of_that_node_is_gone(
    gone: list[str],
) -> None:
    polls, pilots = Polls(), ["n1:0", "n1:1", "n2:0"]
    polls.at(1.0, pilots=pilots)
    left = [gpu for gpu in pilots if gpu not in gone]
    (start,) = polls.at(2.0, runs("17", 1.9, 1.2), pilots=left)
    assert start.affected is (Affected.TAKEN if gone == ["n1:1"] else Affected.NO)
    polls = Polls()
    polls.at(1.0, held=NODE)
    polls.at(2.0)
    (later,) = polls.at(3.0, runs("18", 2.9, 2.2))
    assert later.affected is Affected.NO, "the node was free before the job came"


def test_a_job_that_gets_nodes_and_does_not_start_got_them_in_vain() -> None:
    polls = Polls()
    polls.at(1.0, waits(submitted=0.9), claims={"17"}, held=NODE)
    assert polls.at(IN_VAIN_S, waiting={"17"}) == []
    (start,) = polls.at(IN_VAIN_S + 1.1, waiting={"17"})
    assert start.affected is Affected.IN_VAIN
    assert start.wait_s == pytest.approx(IN_VAIN_S + 0.2)
    assert polls.at(IN_VAIN_S + 2, waiting={"17"}) == [], "it is told once"
    (late,) = polls.at(900.0, runs("17", 899.9, 0.9))
    assert late.affected is Affected.NO, "since then it has waited for others"


def test_a_job_that_nodes_are_cleared_for_before_it_can_start_waits_from_when_it_can() -> None:
    polls = Polls()
    polls.at(1.0, claims={"17"}, held=NODE)
    polls.at(60.0, claims={"17"}, held=NODE)
    polls.at(61.0, waits(submitted=0.5), claims={"17"}, held=NODE)
    (start,) = polls.at(62.0, runs("17", 61.5, 0.5))
    assert start.affected is Affected.CLAIMED
    assert start.wait_s == pytest.approx(1.5)
    polls = Polls()
    polls.at(1.0, claims={"17"}, held=NODE)
    assert [polls.at(float(time), waiting={"17"}) for time in range(2, 100, 10)] == [[]] * 10
    (start,) = polls.at(101.0, runs("17", 100.0, 0.5))
    assert start.affected is Affected.NO, "its nodes had been idle for long"


def test_what_no_poll_has_seen_wait_is_not_guessed() -> None:
    polls = Polls()
    polls.at(100.0)
    assert polls.at(101.0, runs("17", 100.5, 3.0)) == []
    fresh = MainJobs()
    first = Snapshot(time=9.0, nodes=(), main=(runs("17", 8.9, 8.8),))
    assert fresh.observe(first, ()) == [], "the first poll shows what has been there before"


def test_a_job_that_goes_back_to_the_queue_is_counted_with_its_next_start() -> None:
    polls = Polls()
    polls.at(1.0, runs("17", 0.8, 0.6))
    polls.at(2.0, waiting={"17"})
    (again,) = polls.at(3.0, runs("17", 2.9, 0.6))
    assert again.requeued == 1
    polls.at(4.0)
    (other,) = polls.at(5.0, runs("18", 4.9, 4.8))
    assert other.requeued == 0


def test_tasks_of_an_array_wait_from_when_the_one_before_has_started() -> None:
    polls = Polls()
    polls.at(1.0, waits("17", submitted=0.5), claims={"17"}, held=NODE)
    (first,) = polls.at(2.0, runs("17_1", 1.5, 0.5), waits("17", submitted=0.5), claims={"17"}, held=NODE)
    assert first.affected is Affected.CLAIMED
    assert first.wait_s == pytest.approx(1.0)
    (second,) = polls.at(9.0, runs("17_2", 8.5, 0.5), held=NODE)
    assert second.wait_s <= 7.5 + 1e-9, "not since the submission"


@given(
    st.lists(st.floats(0.05, 3.0), min_size=2, max_size=30),
    st.floats(1.0, 20.0),
    st.floats(0.0, 10.0),
    st.booleans(),
)
def test_the_wait_is_right_within_the_time_between_polls(
    steps: list[float], arrives: float, waited: float, claimed: bool
) -> None:
    """A job comes, could start at once but for us, and starts; polls show it with times in whole seconds."""
    polls, now = Polls(), 0.0
    starts, found = arrives + waited, list[MainStart]()
    for step in [*steps, *[0.5] * 70]:
        now += step
        if now < arrives:
            shown: tuple[MainJob, ...] = ()
        elif now < starts:
            shown = (waits(submitted=float(math.floor(arrives)), rounded_s=1.0),)
        else:
            shown = (runs("17", math.floor(starts), math.floor(arrives), r=1.0),)
        waiting = bool(shown) and not shown[0].on
        claims = {"17"} if waiting and claimed else set()
        found += polls.at(now, *shown, claims=claims, held=NODE if claims else ())
    widest = max(0.5, *steps)
    (start,) = found
    assert abs(start.wait_s - waited) <= 2 * widest + 1e-6
    assert abs(start.wait_s - waited) <= 2.0 + 1e-6, "nor worse than what whole seconds tell"
    if not claimed:
        assert start.affected is Affected.NO


@given(st.data())
def test_any_polls_are_borne_and_no_wait_is_negative(data: st.DataObject) -> None:
    polls, now = Polls(), 0.0
    jobs = st.sampled_from(["1", "2", "2_1", "2_2", "3"])
    moments = st.one_of(st.none(), st.floats(-10, 300))
    for _ in range(data.draw(st.integers(1, 12))):
        now += data.draw(st.floats(0.0, 60.0))
        main = data.draw(
            st.lists(
                st.builds(
                    MainJob,
                    job=jobs,
                    nodes=st.integers(1, 3),
                    submitted=moments,
                    started=moments,
                    on=st.frozensets(st.sampled_from(["n1", "n2"])),
                    rounded_s=st.sampled_from([0.0, 1.0]),
                ),
                max_size=4,
                unique_by=lambda job: job.job,
            )
        )
        found = polls.at(
            now,
            *main,
            held=data.draw(st.sets(st.sampled_from(["n1", "n2"]))),
            claims=data.draw(st.sets(jobs)),
            waiting=data.draw(st.sets(jobs)),
        )
        for start in found:
            assert 0.0 <= start.wait_s <= now
            if start.affected is Affected.CLAIMED:
                assert start.given > 0
