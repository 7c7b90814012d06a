"""Readers of scheduler logs, on what real schedulers wrote and on what is broken."""

from __future__ import annotations

import csv
import lzma
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.traces.formats import jobs, sinfo, swf
from bftrainer.traces.formats.jobs import LoggedJob
from bftrainer.traces.formats.lines import BrokenLineError, Lines, moment, node_names
from bftrainer.traces.intervals import Interval, LogError
from bftrainer.traces.logs import FORMATS, Log, LogOptions, load

INF = float("inf")
SHARED = Path(__file__).resolve().parents[4] / "shared"
TRACES = SHARED / "traces"
WHISK = TRACES / "hpcwhisk-2022"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the real logs are not beside this checkout")

SACCT = """\
JobID|Submit|Start|End|NNodes|NodeList|Partition|State|Timelimit
1|2026-11-21T03:52:49|2026-11-21T03:52:51|2026-11-21T03:52:54|4|n[1-4]|batch|COMPLETED|00:05:00
1.batch|2026-11-21T03:52:51|2026-11-21T03:52:51|2026-11-21T03:52:54|1|n1|||
2|2026-11-21T03:52:49|2026-11-21T03:52:51|2026-11-21T03:52:51|2|n[5-6]|batch|FAILED|00:05:00
3|2026-11-21T03:52:49|2026-11-21T03:52:58|Unknown|1|n4|backfill|RUNNING|00:05:00
4|2026-11-21T03:52:49|2026-11-21T03:52:55|2026-11-21T03:52:58|16|n[1-16]|batch|COMPLETED|00:05:00
5|2026-11-21T03:52:49|Unknown|Unknown|16|None assigned|batch|PENDING|00:05:00
"""
"""As `sacct --parsable2` of Slurm 22.05 printed it, with a step and a pending job."""
JOBCOMP = (
    "JobId=2 UserId=root(0) GroupId=root(0) Name=m 2 =x JobState=FAILED Partition=batch TimeLimit=5 "
    "StartTime=2026-11-21T03:52:51 EndTime=2026-11-21T03:52:51 NodeList=n[5-6] NodeCnt=2 ProcCnt=8 \n"
    "JobId=1 UserId=root(0) GroupId=root(0) Name=m1 JobState=COMPLETED Partition=batch TimeLimit=5 "
    "StartTime=2026-11-21T03:52:51 EndTime=2026-11-21T03:52:54 NodeList=n[1-4] NodeCnt=4 ProcCnt=16 \n"
    "JobId=4 UserId=root(0) GroupId=root(0) Name=m3 JobState=COMPLETED Partition=batch TimeLimit=5 "
    "StartTime=2026-11-21T03:52:55 EndTime=2026-11-21T03:52:58 NodeList=n[1-16] NodeCnt=16 ProcCnt=64 \n"
)
BEGIN = 1795233171.0


def read(tmp_path: Path, text: str, **options: object) -> Log:
    (tmp_path / "log").write_text(text)
    return load(tmp_path / "log", LogOptions(**options))  # type: ignore[arg-type]


def swf_job(number: int, submit: int, wait: int, run: int, procs: int) -> str:
    return f"{number} {submit} {wait} {run} {procs} -1 -1 {procs} " + "-1 " * 10 + "\n"


# --- lines ---------------------------------------------------------------------------------------


def test_node_lists_are_expanded_in_order() -> None:
    assert node_names("n[1-3],m[08-10]x") == ("m08x", "m09x", "m10x", "n1", "n2", "n3")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n[1-",
        "n[4-1]",
        "a,,b",
        "(null)",
        "@all",
        "a!b",
        "n*",
        "n[1-9999999999]",
        "n[0-9999]x[0-9999]",
        "n²",
    ],
)
def test_what_is_no_node_list_is_broken(text: str) -> None:
    with pytest.raises(BrokenLineError):
        node_names(text)


def test_times_are_unix_seconds_or_iso() -> None:
    assert (
        moment("1795233171") == moment("2026-11-21T03:52:51") == moment("2026-11-21T04:52:51+01:00") == BEGIN
    )
    for text in ("", "soon", "nan", "2026-13-01T00:00:00"):
        with pytest.raises(BrokenLineError):
            moment(text)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_log_or_a_log_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("x") / "log"
    first = {"swf": swf_job(1, 1, 1, 9, 1), "sacct": SACCT, "jobcomp": JOBCOMP}
    for name in FORMATS:
        path.write_bytes(first.get(name, "").encode() + content)
        try:
            assert load(path, LogOptions(format=name, machine_nodes=99, max_broken=1.0)).format == name
        except LogError as error:
            assert str(path) in str(error)


# --- jobs ----------------------------------------------------------------------------------------

JOBS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 20), st.frozensets(st.sampled_from("abc"), min_size=1)),
    max_size=12,
).map(lambda rows: sorted(LoggedJob(float(s), float(s + n), sorted(names)) for s, n, names in rows))


@given(JOBS)
def test_a_node_is_idle_exactly_when_no_job_uses_it(some: list[LoggedJob]) -> None:
    found = list(jobs.idle(some, "abc", 0.0, 60.0))
    for second in range(60):
        for node in "abc":
            used = any(node in job.nodes and job.start <= second < job.end for job in some)
            idle = [i for i in found if i.node == node and i.start <= second < i.end]
            assert len(idle) == (not used)
    assert all(i.start < i.end for i in found)
    for node in "abc":  # neighbours do not touch: what is one stay is one fragment
        own = sorted(i for i in found if i.node == node)
        assert all(a.end < b.start for a, b in pairwise(own))


# --- SWF -----------------------------------------------------------------------------------------


def test_swf_jobs_take_the_first_free_nodes_in_order_of_their_start(tmp_path: Path) -> None:
    header = "; a comment\n; UnixStartTime: 1000\n; MaxNodes: 4\n; MaxProcs: 8\n"
    text = header + swf_job(1, 0, 10, 10, 3) + swf_job(2, 5, 0, 5, 4) + swf_job(3, 5, 5, 20, 2)
    log = read(tmp_path, text, cores_per_node=2)
    # job 2 has n01, n02 from 1005 to 1010; job 1 then has n01, n02 until 1020 and job 3 has n03 until 1030
    assert sorted(log.intervals) == [
        Interval(1005.0, 1010.0, "n03"),
        Interval(1005.0, INF, "n04"),
        Interval(1020.0, INF, "n01"),
        Interval(1020.0, INF, "n02"),
    ]
    assert (log.format, log.begin, log.end, log.machine_nodes, log.notes) == ("swf", 1005.0, 1030.0, 4, ())


def test_swf_jobs_over_capacity_take_what_is_free_and_are_reported(tmp_path: Path) -> None:
    text = (
        swf_job(1, 0, 0, 10, 3) + swf_job(2, 5, 0, 10, 3) + swf_job(3, 6, 0, 3, 1) + swf_job(4, 20, 0, 5, 9)
    )
    log = read(tmp_path, text, machine_nodes=4)
    assert sorted(i for i in log.intervals if i.node == "n04") == [
        Interval(0.0, 5.0, "n04"),
        Interval(15.0, 20.0, "n04"),
    ]
    assert log.notes == (
        "3 jobs are over capacity and took what was free; the worst: job 4 wanted 9 nodes and found 4 free",
    )


def test_swf_says_what_it_leaves_out(tmp_path: Path) -> None:
    jobs_of_all_kinds = swf_job(1, 0, 0, 10, 2) + swf_job(2, 0, -1, 10, 2) + swf_job(3, 0, 5, 0, 2)
    log = read(tmp_path, "; MaxNodes: 2\n; MaxProcs: 8\n" + jobs_of_all_kinds)
    assert log.machine_nodes == 8
    assert "8 processors on 2 nodes; --cores-per-node" in log.notes[0]
    assert log.notes[1:] == (
        "1 job never ran; left out",
        "1 job without a wait time (field 3 is -1): taken to start when submitted",
    )
    with pytest.raises(LogError, match="Give --machine-nodes"):
        read(tmp_path, swf_job(1, 0, 0, 10, 2))
    with pytest.raises(LogError, match="no job in it ever ran"):
        read(tmp_path, swf_job(2, 0, -1, 0, 2), machine_nodes=2)


def test_swf_jobs_without_wait_times_start_when_they_were_submitted(tmp_path: Path) -> None:
    header = "; UnixStartTime: 749458803\n; MaxNodes: 8\n; MaxProcs: 8\n"
    jobs_of = [(1, 0, 4), (2, 500, 2), (3, 2000, 8)]
    logs = [
        read(tmp_path, header + "".join(swf_job(n, at, wait, 1000, size) for n, at, size in jobs_of))
        for wait in (-1, 0)
    ]
    assert logs[0].intervals == logs[1].intervals and len(logs[0].intervals) == 10
    assert [len(log.notes) for log in logs] == [1, 0] and logs[0].notes[0].startswith("3 jobs without a wait")


def test_swf_jobs_without_run_times_are_not_jobs_that_never_ran(tmp_path: Path) -> None:
    unknown = "2 0 0 -1 2 -1 -1 2 -1 -1 1" + " -1" * 7 + "\n"
    cancelled = "3 0 9 -1 2 -1 -1 2 -1 -1 5" + " -1" * 7 + "\n"
    log = read(tmp_path, swf_job(1, 0, 0, 10, 2) + unknown + cancelled, machine_nodes=2)
    assert log.notes == (
        "1 job never ran; left out",
        "1 job without a run time (field 4 is -1); left out",
    )
    with pytest.raises(LogError, match=r"no run times \(field 4 is -1\)"):
        read(tmp_path, unknown, machine_nodes=2)


def test_a_job_whose_nodes_are_unknown_is_not_one_that_never_ran(tmp_path: Path) -> None:
    nameless = "6|2026-11-21T03:52:49|2026-11-21T03:52:51|2026-11-21T03:52:59|2||batch|COMPLETED|00:05:00\n"
    cancelled = (
        "7|2026-11-21T03:52:49|2026-11-21T03:52:51|2026-11-21T03:52:51|2|None assigned|batch|CANCELLED|1\n"
    )
    log = read(tmp_path, SACCT + nameless + cancelled)
    assert log.intervals == read(tmp_path, SACCT).intervals
    assert log.notes[:2] == (
        "2 jobs never started; left out",
        "1 job ran on nodes that are not named; left out",
    )
    with pytest.raises(LogError, match="none of its jobs names its nodes"):
        read(tmp_path, SACCT.split("\n", 1)[0] + "\n" + nameless)


def test_sacct_with_raw_numbers_of_jobs(tmp_path: Path) -> None:
    raw = SACCT.replace("JobID|", "JobIDRaw|")
    (with_ids, with_raw) = (read(tmp_path, text) for text in (SACCT, raw))
    assert with_raw.format == "sacct" and with_raw.intervals == with_ids.intervals
    both = SACCT.replace("JobID|", "JobID|JobIDRaw|").replace("\n1", "\n1|1").replace("\n2|", "\n2|2|")
    both = both.replace("\n3|", "\n3|3|").replace("\n4|", "\n4|4|").replace("\n5|", "\n5|5|")
    assert read(tmp_path, both).broken == 0


@pytest.mark.parametrize(
    "row", ["gpu up infinite 0 n/a", "gpu up infinite 0 n/a (null)", "old down 1:00 0 n/a"]
)
def test_a_partition_of_sinfo_without_nodes_names_none(tmp_path: Path, row: str) -> None:
    def dump(extra: str) -> str:
        rows = ["normal* up infinite 2 idle n[1-2]", extra]
        return "".join("\n".join((str(1773000000 + 10 * i), *rows, "----\n")) for i in range(3))

    with_it, without = read(tmp_path, dump(row)), read(tmp_path, dump("PARTITION AVAIL"))
    assert with_it.broken == 0 and with_it.intervals == without.intervals and with_it.nodes == {"n1", "n2"}
    alone = "".join(f"{1773000000 + i}\n{row}\n----\n" for i in range(3))
    assert read(tmp_path, alone, format="sinfo").intervals == []


def test_swf_broken_lines(tmp_path: Path) -> None:
    text = "; MaxNodes: 9\n" + swf_job(1, 0, 0, 10, 2) * 20 + "2 0 0\n" + swf_job(3, 0, 0, 9, -1) + "x " * 18
    assert read(tmp_path, text, max_broken=0.2).broken == 3
    with pytest.raises(LogError, match=r"3 of 24 lines \(12.5%\)"):
        read(tmp_path, text)


REQUESTS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(1, 6)), min_size=1, max_size=30
).map(
    lambda rows: [swf.Request(float(s), float(s + n), size, "", float(s), 0.0) for s, n, size in sorted(rows)]
)


@given(REQUESTS)
def test_swf_nodes_have_one_job_at_a_time_and_none_waits_in_vain(requests: list[swf.Request]) -> None:
    nodes, shortage = list("abcdef"), swf.JobShortage()
    given_out = list(swf.assign(requests, nodes, shortage))
    for i, job in enumerate(given_out):
        assert not any(set(job.nodes) & set(o.nodes) for o in given_out[:i] if o.end > job.start)
    for request in requests:
        running = sum(len(j.nodes) for j in given_out if j.start <= request.start < j.end)
        wanted = sum(r.size for r in requests if r.start <= request.start < r.end)
        assert running <= 6 and (running == wanted or shortage.jobs)


@needs_traces
def test_swf_of_a_small_machine() -> None:
    path = TRACES / "pwa" / "KTH-SP2-1996-2.1-cln.swf.gz"
    log = load(path)
    assert (log.format, log.broken, log.machine_nodes, len(log.nodes)) == ("swf", 0, 100, 100)
    assert log.begin == 843480031 + 605396  # the first start is that of job 20
    assert log.notes[0].startswith("11 jobs are over capacity")
    assert log == load(path)
    idle = sum(min(i.end, log.end) - i.start for i in log.intervals)
    assert 1 - idle / (100 * (log.end - log.begin)) == pytest.approx(0.686, abs=0.001)


# --- Slurm's own logs ----------------------------------------------------------------------------


@pytest.mark.parametrize("text", [SACCT, JOBCOMP], ids=["sacct", "jobcomp"])
def test_slurm_job_logs(tmp_path: Path, text: str) -> None:
    log = read(tmp_path, text)
    assert (log.format, log.broken, len(log.nodes)) == ("sacct" if text == SACCT else "jobcomp", 0, 16)
    assert (log.begin, log.end) == (BEGIN, BEGIN + 7)
    own = {n: [(i.start - BEGIN, i.end - BEGIN) for i in log.intervals if i.node == n] for n in log.nodes}
    assert own["n1"] == [(3.0, 4.0)]
    assert own["n5"] == own["n16"] == [(0.0, 4.0)]
    if text == SACCT:
        assert log.notes == (
            "1 job never started; left out",
            "1 job has no end: such nodes count as used to the end of the log",
        )


def test_sacct_columns_are_found_by_name_and_broken_lines_counted(tmp_path: Path) -> None:
    text = "NodeList|End|Start|JobID\nn1|30|10|7\nn1|40|50|8\nn1|x|50|9\nn[|60|50|9\na|b|c\nn2|60|50|9\n"
    log = read(tmp_path, text, max_broken=0.9)
    assert log.broken == 4
    assert sorted(log.intervals) == [Interval(10.0, 50.0, "n2"), Interval(30.0, INF, "n1")]
    with pytest.raises(LogError, match=r":3: the end 40 is before the start 50"):
        read(tmp_path, text)


def test_jobcomp_broken_lines(tmp_path: Path) -> None:
    log = read(tmp_path, JOBCOMP + "JobId=9 Name=cut off StartTi\n", max_broken=0.3)
    assert log.broken == 1 and "lacks StartTime=" in log.examples[0]


@pytest.mark.skipif(not (SHARED / "samples").is_dir(), reason="the samples are not beside this checkout")
def test_what_slurm_printed() -> None:
    folder = SHARED / "samples" / "slurm-22.05"
    plain, steps, completed = (load(folder / f"{n}.txt") for n in ("sacct", "sacct-steps", "jobcomp-filetxt"))
    assert (plain.format, completed.format) == ("sacct", "jobcomp")
    assert plain.intervals == steps.intervals == completed.intervals
    assert (plain.broken, steps.broken, completed.broken, len(plain.intervals)) == (0, 0, 0, 16)


@needs_traces
def test_a_list_of_jobs_without_their_nodes_is_refused() -> None:
    with pytest.raises(LogError, match=r"has JobID, Start, End, NodeList.* sacct --parsable2"):
        load(WHISK / "17_03_slurm-jobs.txt.xz")


# --- sinfo ---------------------------------------------------------------------------------------


def sample(time: int, held: str, *lines: str) -> str:
    return "\n".join([str(time), f"invokers: {held}", *(f"low up 12:00:00 1 {x}" for x in lines), "----\n"])


def test_sinfo_counts_idle_and_held_nodes_only(tmp_path: Path) -> None:
    text = (
        sample(1000000000, "h1,h2", "idle n[1-2]", "idle~ n3", "idle# n4", "idle* n5", "alloc n6")
        + sample(1000000010, "h2,n1", "idle n2,n7")
        + sample(1000000020, "")
    )
    log = read(tmp_path, text)
    assert (log.format, len(log.nodes), log.begin, log.end) == ("sinfo", 9, 1e9, 1e9 + 20)
    assert sorted((i.node, i.start - 1e9, i.end - 1e9) for i in log.intervals) == [
        ("h1", 0, 10), ("h2", 0, 20), ("n1", 0, 20), ("n2", 0, 20), ("n7", 10, 20)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "broken",
    [
        sample(1000000010, "h[", "idle n1"),
        sample(1000000010, "h1", "idle"),
        sample(999999999, "h1", "idle n1"),
        "1000000010\ninvokers: x\n",
    ],
    ids=["node list", "cells", "goes back", "no end"],
)
def test_a_broken_sample_is_skipped_not_an_empty_pool(tmp_path: Path, broken: str) -> None:
    text = sample(1000000000, "h1") + broken + sample(1000000020, "h1")
    log = read(tmp_path, text, max_broken=0.2)
    assert log.broken == 1
    assert log.intervals == [Interval(1e9, INF, "h1")]
    with pytest.raises(LogError, match=r"more than --max-broken 0\.01"):
        read(tmp_path, text)


def test_a_dump_cut_off_at_its_end_loses_only_the_last_sample(tmp_path: Path) -> None:
    text = sample(1000000000, "h1") + sample(1000000010, "h1") + "1000000020\n"
    log = read(tmp_path, text, max_broken=0.5)
    assert (log.broken, log.end) == (1, 1e9 + 10)


@needs_traces
def test_sinfo_of_a_real_machine() -> None:
    path = WHISK / "17_03_2022_idle_nodes.txt.xz"
    with lzma.open(path, "rt") as file:
        sizes = [len(pool) for _, pool, _ in sinfo.samples(Lines(file))]
    assert (len(sizes), round(sum(sizes) / len(sizes), 3)) == (8057, 11.854)
    log = load(path)
    assert (log.format, log.broken, log.lines) == ("sinfo", 0, 29215)
    assert round((log.end - log.begin) / 3600, 1) == 24.0
    with lzma.open(WHISK / "17_03_2022_idle_nodes_intervals.csv.xz", "rt") as file:
        rows = list(csv.DictReader(file))
    for half_hour in range(48):
        now = log.begin + half_hour * 1800 + 5
        theirs = {r["node"] for r in rows if float(r["start"]) <= now < float(r["end"] or INF)}
        assert {i.node for i in log.intervals if i.start <= now < i.end} == theirs


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_called_empty(tmp_path: Path, text: str) -> None:
    with pytest.raises(LogError, match="the file is empty"):
        read(tmp_path, text)


@pytest.mark.parametrize("time", ["soon", "2021-13-01T00:00:00", "nan"])
def test_a_wrong_time_says_that_a_time_is_expected(tmp_path: Path, time: str) -> None:
    with pytest.raises(LogError, match="is no time; expected Unix seconds or 2021"):
        read(tmp_path, f"JobID|Start|End|NodeList\n1|{time}|7|n1\n")
