"""Logs of jobs that use some GPUs of a node: which GPUs are idle, and which nodes are wholly so."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.traces.formats.gpu_jobs import GpuRequest, NodeUse, assign, most_at_once, on_nodes, queued
from bftrainer.traces.formats.shortage import JobShortage
from bftrainer.traces.intervals import Interval, LogError
from bftrainer.traces.logs import Log, LogOptions, load


def placed(fit: str, *jobs: tuple[float, float, int], nodes: int = 2) -> list[list[str]]:
    requests = [GpuRequest(start, end, size, str(i)) for i, (start, end, size) in enumerate(jobs)]
    names = [f"n{i}" for i in range(nodes)]
    return [list(job.nodes) for job in assign(requests, names, 4, fit, JobShortage())]


def test_first_fit_takes_the_first_node_and_best_fit_the_fullest_that_has_enough() -> None:
    jobs = ((0, 5, 2), (0, 9, 3), (6, 9, 1))
    assert placed("first-fit", *jobs)[-1] == ["n0:0"]
    assert placed("best-fit", *jobs)[-1] == ["n1:3"]


def test_large_jobs_take_whole_nodes_and_the_rest_beside_others() -> None:
    assert placed("best-fit", (0, 9, 1), (0, 9, 6), nodes=3)[-1] == [
        *(f"n1:{i}" for i in range(4)),
        *("n0:1", "n0:2"),
    ]


def test_gpus_are_free_again_when_a_job_ends() -> None:
    assert placed("first-fit", (0, 5, 4), (5, 6, 4), nodes=1) == [[f"n0:{i}" for i in range(4)]] * 2


def test_a_job_that_is_too_large_takes_what_there_is() -> None:
    short = JobShortage()
    (job,) = assign([GpuRequest(0, 9, 6, "7")], ["n0"], 4, "first-fit", short)
    assert len(job.nodes) == 4
    assert list(short.notes()) == [
        "1 job is over capacity and took what was free; the worst: job 7 wanted 6 GPUs and found 4 free"
    ]


def test_jobs_wait_for_their_turn() -> None:
    """The second fits on no node before the first ends, and the third came after it."""
    come = [GpuRequest(0, 10, 3, "a"), GpuRequest(1, 3, 2, "b"), GpuRequest(2, 3, 1, "c")]
    assert [(j.start, j.end) for j in queued(come, ["n0"], 4, "best-fit")] == [(0, 10), (10, 12), (10, 11)]


def test_a_job_of_several_nodes_waits_for_whole_ones() -> None:
    come = [GpuRequest(0, 10, 1, "a"), GpuRequest(1, 2, 6, "b")]
    assert [j.start for j in queued(come, ["n0", "n1"], 4, "first-fit")] == [0, 1]
    assert [j.start for j in queued([*come[:1], GpuRequest(1, 2, 8, "b")], ["n0", "n1"], 4, "first-fit")] == [
        *(0, 10)
    ]


def test_jobs_on_known_nodes_get_gpus_of_these() -> None:
    uses = [NodeUse(0, 9, ("a", "b"), 2), NodeUse(1, 9, ("b",), 1), NodeUse(2, 9, ("b",), 4)]
    assert [list(job.nodes) for job in on_nodes(uses, 4)] == [["a:0", "a:1", "b:0", "b:1"], ["b:2"], ["b:3"]]


def test_the_most_at_once_counts_ends_before_starts() -> None:
    assert most_at_once([GpuRequest(0, 5, 3, ""), GpuRequest(5, 6, 2, ""), GpuRequest(5, 7, 2, "")]) == 4


PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 00:00:00,3600.0,1,3600.0,aa
2017-10-09 00:30:00,3600.0,3,10800.0,aa
2017-10-09 02:00:00,3600.0,2,7200.0,bb
"""


def read(folder: Path, text: str, name: str = "log", **options: object) -> Log:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load(path, LogOptions(**options))  # type: ignore[arg-type]


def idle_h(log: Log) -> float:
    return sum(min(i.end, log.end) - i.start for i in log.intervals) / 3600


def test_a_log_of_philly_gives_idle_gpus_and_idle_nodes(tmp_path: Path) -> None:
    """By hand, over 2 hours: aa has 4 GPUs, used for 1 + 3 h of 8; bb has 2 of its own 4, not yet used."""
    gpus = read(tmp_path, PHILLY, share="gpu", gpus_per_node=4)
    assert (gpus.format, len(gpus.nodes), gpus.machine_nodes) == ("philly", 8, 8)
    assert idle_h(gpus) == pytest.approx(8 - 4 + 8)
    nodes = read(tmp_path, PHILLY, gpus_per_node=4)
    assert nodes.nodes == {"aa-n01", "bb-n01"}
    assert idle_h(nodes) == pytest.approx(0.5 + 2)


def test_a_machine_of_philly_is_shared_out_to_its_clusters(tmp_path: Path) -> None:
    log = read(tmp_path, PHILLY, gpus_per_node=2, machine_nodes=5)
    assert sorted(log.nodes) == ["aa-n01", "aa-n02", "aa-n03", "bb-n01", "bb-n02"]
    with pytest.raises(LogError, match="the largest jobs of the clusters need 3 with 2 GPUs"):
        read(tmp_path, PHILLY, gpus_per_node=2, machine_nodes=2)
    with pytest.raises(LogError, match="0 GPUs; a job has 1 or more"):
        read(tmp_path, PHILLY.replace(",3,", ",0,"), max_broken=0.0)


SWF = "; MaxProcs: 8\n" + "".join(
    f"{job} 0 {start} {run} {size} -1 -1 {size} -1 -1 1 1 1 1 1 1 -1 -1\n"
    for job, start, run, size in ((1, 0, 100, 2), (2, 0, 50, 4), (3, 100, 10, 1))
)


def test_processors_of_an_swf_log_are_gpus_if_they_are_said_to_be(tmp_path: Path) -> None:
    log = read(tmp_path, SWF, share="gpu", gpus_per_node=4, gpu_jobs="first-fit")
    assert len(log.nodes) == 8
    assert Interval(50, float("inf"), "n02:3") in log.intervals
    assert {i.node for i in log.intervals if i.start == 0} == {"n01:2", "n01:3"}
    whole = read(tmp_path, SWF, gpus_per_node=4, gpu_jobs="first-fit")
    assert whole.intervals == [Interval(50, float("inf"), "n02")], "n01 is used to the end"
    with pytest.raises(LogError, match=r"the log's processors are GPUs\. Leave --cores-per-node out"):
        read(tmp_path, SWF, cores_per_node=4, gpu_jobs="first-fit")


SACCT = """JobID|Start|End|NodeList|State|AllocTRES
1|0|100|n[1-2]|COMPLETED|cpu=8,gres/gpu:a100=4,gres/gpu=4,node=2
2|10|60|n1|COMPLETED|cpu=4,node=1
3|100|120|n2|COMPLETED|billing=9,gres/gpu=4,node=1
"""


def test_sacct_says_how_many_gpus_jobs_used(tmp_path: Path) -> None:
    """The job without GPUs keeps its node from being idle as a whole, and no GPU."""
    text = SACCT.replace("|0|", "|1|")
    gpus = read(tmp_path, text, share="gpu", gpus_per_node=4)
    assert {i.node for i in gpus.intervals if i.start == 1} == {"n1:2", "n1:3", "n2:2", "n2:3"}
    assert [i for i in gpus.intervals if i.node == "n1:2"] == [Interval(1, float("inf"), "n1:2")]
    nodes = read(tmp_path, text, gpus_per_node=4)
    assert nodes.intervals == [Interval(100, float("inf"), "n1")]
    assert read(tmp_path, text).nodes == {"n1", "n2"}, "without gpus_per_node nodes are whole, as before"


INTERVALS = "idle_start,idle_end,node\n0,10,a\n5,20,b\n"


def test_a_log_of_nodes_is_one_of_their_gpus(tmp_path: Path) -> None:
    log = read(tmp_path, INTERVALS, share="gpu", gpus_per_node=2, machine_nodes=3)
    assert log.intervals == [
        *(Interval(0, 10, "a:0"), Interval(0, 10, "a:1")),
        *(Interval(5, 20, "b:0"), Interval(5, 20, "b:1")),
    ]
    assert log.machine_nodes == 6


def test_a_node_is_idle_while_all_its_gpus_are(tmp_path: Path) -> None:
    text = "idle_start,idle_end,node\n0,10,a:0\n5,20,a:1\n10,12,a:0\n15,16,a:0\n"
    assert read(tmp_path, text).intervals == [
        *(Interval(5, 10, "a"), Interval(10, 12, "a")),
        Interval(15, 16, "a"),
    ]
