"""Why a main job was late: read from the logs of slurmctld and of the daemon, and from other jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.testbeds.impact.differences import MODES, compare
from benchmarks.testbeds.impact.events import Job, What, job_of, of_daemon
from benchmarks.testbeds.impact.reasons import Late, Reason, explain, requeued, timeline
from benchmarks.testbeds.runs import MainRun
from slurm.impact.logs import events_of, nodes_of, of_slurmctld
from tests.support.main_runs import SUBMITTED, main_run


def stamp(after_s: float) -> str:
    return datetime.fromtimestamp(SUBMITTED + after_s).isoformat(timespec="milliseconds")  # noqa: DTZ006


def slurm(*lines: tuple[float, str]) -> str:
    return "".join(f"[{stamp(after)}] {text}\n" for after, text in lines)


def daemon(*lines: tuple[float, str]) -> str:
    return "".join(
        f"{stamp(after).replace('T', ' ').replace('.', ',')} INFO {text}\n" for after, text in lines
    )


def late(
    wait_s: float, slurmctld: str = "", said: str = "", others: tuple[MainRun, ...] = (), **changed: Any
) -> Late:
    """The explanation of job 1 (10 in Slurm), which waited a second without bftrainer."""
    runs = {mode: [main_run(1, 1.0, **changed)] for mode in MODES}
    runs["with"] = [main_run(1, wait_s, **changed)]
    for run in others:
        runs["with"].append(run)
    for mode in ("without", "again"):
        runs[mode] += [main_run(run.number, 0.5) for run in others]
    (found,) = [
        one
        for one in explain(compare(1, runs), runs, events_of({"slurmctld": slurmctld, "daemon": said}))
        if one.job.number == 1
    ]
    return found


def reasons(found: Late) -> list[Reason]:
    return [why.reason for why in found.why]


HETEROGENEOUS = slurm(
    (0.0, "_slurm_rpc_submit_batch_job: JobId=10 InitPrio=4294901747 usec=371"),
    (0.9, "sched/backfill: _start_job: Started JobId=10+0(10) in batch on n1"),
    (0.9, "preempted JobId=9 has been killed to reclaim resources for JobId=10+1(11)"),
    (
        0.9,
        "sched/backfill: _start_job: Failed to start JobId=10+1(11) with n[1-8] avail: Nodes busy",
    ),
    (0.9, "sched/backfill: _het_job_kill_now: Deallocate JobId=10+0(10) due to hetjob start failure"),
    (1.0, "Requeuing JobId=10+0(10)"),
    (121.0, "sched: Allocate JobId=10+0(10) NodeList=n1 #CPUs=4 Partition=batch"),
)


def test_a_heterogeneous_job_whose_second_part_could_not_start_is_told_so() -> None:
    found = late(121.2, HETEROGENEOUS, kind="heterogeneous")
    assert reasons(found) == [Reason.REQUEUED, Reason.PREEMPTED]
    assert "+1.0 s: sched/backfill: _het_job_kill_now: Deallocate" in found.why[0].words
    assert "1 pilots; its start failed 1 times" in found.why[1].words
    run = main_run(1, 121.2, kind="heterogeneous")
    assert requeued(events_of({"slurmctld": HETEROGENEOUS}), [run, main_run(2, 1)]) == [run]
    twice = main_run(3, 1, starts=2)
    assert requeued([], [twice, main_run(2, 1)]) == [twice]


def test_the_timeline_has_a_line_for_each_job() -> None:
    runs = {mode: [main_run(1, 1.0, kind="heterogeneous"), main_run(2, None)] for mode in MODES}
    runs["with"] = [main_run(1, 1.5, kind="heterogeneous"), main_run(2, None)]
    first, second = timeline(runs, events_of({"slurmctld": HETEROGENEOUS}))
    assert first.startswith("main-1.0 heterogeneous: 1.00 / 1.00 / 1.50 s; +0.9 s started, +0.9 s preempted")
    assert second == "main-2.0 nodes: - / - / - s; "


def test_nodes_that_were_vacated_late_are_told_with_the_decision() -> None:
    said = daemon(
        (2.6, "vacated jobs=10,44 count=3 nodes=n1,n2,n3 seconds=0.1"), (2.7, "vacated jobs=9 count=1")
    )
    found = late(3.0, said=said)
    assert reasons(found) == [Reason.VACATED_LATE]
    assert found.why[0].words == "+2.6 s 3 nodes, decided +2.5 s"
    assert reasons(late(3.0, said=daemon((0.3, "vacated jobs=10 count=1 seconds=0.1")))) == [Reason.UNKNOWN]


def test_slurm_and_the_launch_may_be_slow() -> None:
    busy = slurm((0.5, "Warning: Note very large processing time from _slurmctld_background: usec=3000000"))
    assert reasons(late(3.0, busy)) == [Reason.BUSY]
    assert reasons(late(3.0, said=daemon((1.0, 'scheduler_failed reason="slurmctld is down"')))) == [
        Reason.BUSY
    ]
    assert late(3.0, accepted=SUBMITTED + 2).why[0].words == "submitting it took 2.0 s"
    started = slurm((0.2, "sched: Allocate JobId=10 NodeList=n1 #CPUs=4 Partition=batch"))
    assert late(3.0, started).why[0].words == "it was started +0.2 s, its script +3.0 s"


def on(*jobs: tuple[int, str]) -> dict[str, str]:
    """A log of jobs that started on nodes."""
    lines = ((0.1, f"sched: Allocate JobId={job} NodeList={nodes} #CPUs=4") for job, nodes in jobs)
    return {"slurmctld": slurm(*lines)}


def test_other_main_jobs_may_have_had_the_nodes() -> None:
    runs = {mode: [main_run(1, 1.0), main_run(2, 1.5)] for mode in ("without", "again")}
    runs["with"] = [main_run(1, 3.0), main_run(2, 2.0)]

    def told(logs: dict[str, str]) -> list[Reason]:
        (found,) = explain(compare(1, runs), runs, events_of(logs))
        return [reason for reason in reasons(found) if reason is not Reason.LAUNCH]

    shared = on((10, "n[1,3]"), (20, "n[3-4]"))
    (found,) = explain(compare(1, runs), runs, events_of(shared))
    assert found.why[0].words == "only with bftrainer before it: main-2"
    assert told(on((10, "n1"), (20, "n2"))) == []  # elsewhere
    assert told(
        on((10, "n1"), (20, "n2")) | {"daemon": daemon((0.2, "vacated jobs=10 count=1 nodes=n2"))}
    ) == [
        Reason.OVERTAKEN  # they were vacated for this one
    ]
    runs["again"] = [main_run(1, 1.0), main_run(2, 0.5)]  # it was before it there, too
    assert told(shared) == []


def test_a_job_is_behind_a_late_one_only_on_its_nodes() -> None:
    ahead = main_run(2, 5.0, ended=SUBMITTED + 8.5)
    found = late(9.0, on((10, "n3"), (20, "n3"))["slurmctld"], others=(ahead,))
    assert Reason.BEHIND in reasons(found)
    assert any("main-2 (+4.5 s)" in why.words for why in found.why)
    assert Reason.BEHIND not in reasons(late(9.0, on((10, "n3"), (20, "n4"))["slurmctld"], others=(ahead,)))


def test_a_task_before_another_of_its_array_is_no_reason() -> None:
    tasks = [main_run(1, 2.0, task=1, kind="array"), main_run(1, 3.0, kind="array")]
    runs = {mode: [main_run(1, 9.0, task=1), main_run(1, 1.0)] for mode in ("without", "again")}
    (found,) = explain(
        compare(1, {**runs, "with": tasks}), {**runs, "with": tasks}, events_of(on((10, "n1")))
    )
    assert Reason.OVERTAKEN not in reasons(found)


def test_what_happened_before_the_job_could_start_or_to_others_is_no_reason() -> None:
    lines = slurm((1.0, "preempted JobId=9 has been killed to reclaim resources for JobId=10"))
    assert reasons(late(3.0, lines)) == [Reason.PREEMPTED]
    waits = {"eligible": SUBMITTED + 5.0}  # for another job's end
    runs = {mode: [main_run(1, 6.0, **waits)] for mode in MODES}
    runs["with"] = [main_run(1, 8.0, **waits)]
    (found,) = explain(compare(1, runs), runs, events_of({"slurmctld": lines}))
    assert reasons(found) == [Reason.UNKNOWN]
    other = slurm((1.0, "preempted JobId=9 has been killed to reclaim resources for JobId=100"))
    assert late(3.0, other).why[0].words == "neither log has a line about it"


@given(st.text() | st.from_regex(r"[@n\[\],&!^-]{0,9}[0-9]{0,3}", fullmatch=True))
def test_no_set_of_nodes_stops_the_readers(text: str) -> None:
    assert all(isinstance(node, str) for node in nodes_of(text))
    assert nodes_of("n[1,3-4]") == {"n1", "n3", "n4"}


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("17", Job(17)),
        ("17_3(20)", Job(17, 3)),
        ("17_*", Job(17)),
        ("17+1(18)", Job(17)),
        ("17_[3-5]", Job(17)),
    ],
)
def test_jobs_as_slurm_names_them(text: str, job: Job) -> None:
    assert job_of(text) == job


def test_a_task_of_an_array_is_told_from_the_others() -> None:
    task = main_run(1, 1.0, kind="array", task=3, id=55)
    assert Job(10, 3).is_of(task)
    assert Job(55).is_of(task)
    assert Job(10).is_of(task)  # the array as a whole
    assert not Job(10, 4).is_of(task)
    assert not Job(10, 3).is_of(
        main_run(1, 1.0, kind="array", task=4, id=10)
    )  # Slurm numbers the last one so
    assert not Job(11).is_of(main_run(1, 1.0))
    assert Job(10).is_of(main_run(1, 1.0, kind="heterogeneous"))


@settings(max_examples=200)
@given(st.text())
def test_no_text_stops_the_readers(text: str) -> None:
    for line in (
        text,
        f"[{stamp(1)}] {text}",
        f"[9999-99-99T99:99:99] {text}",
        f"[{stamp(1)}] Requeuing JobId={text}",
    ):
        assert all(event.what in What for event in of_slurmctld(line))
    for line in (text, daemon((1, text)), daemon((1, f"vacated jobs={text} count={text} seconds={text}"))):
        assert all(event.count >= 0 for event in of_daemon(line))


LINES = st.lists(
    st.tuples(
        st.floats(-5, 20).map(lambda value: round(value, 3)),
        st.sampled_from([text.partition("] ")[2] for text in HETEROGENEOUS.splitlines()]),
    ),
    max_size=12,
)


@settings(max_examples=60)
@given(LINES, st.floats(2.5, 15))
def test_every_late_job_has_a_reason_and_the_first_in_rank_comes_first(
    lines: list[tuple[float, str]], wait_s: float
) -> None:
    found = late(wait_s, slurm(*lines), kind="heterogeneous")
    ranks = [list(Reason).index(reason) for reason in reasons(found)]
    assert ranks
    assert ranks == sorted(ranks)
    assert (Reason.UNKNOWN in reasons(found)) == (reasons(found) == [Reason.UNKNOWN])
