"""What a replay's record says: worked out by hand, and adding up to the replay's own figures."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import Cost, RescaleCosts, TrainerSpec
from bftrainer.replay.figures import figures_of
from bftrainer.replay.loop import replay
from bftrainer.replay.record import storage, windows
from bftrainer.replay.record.data import ReportData
from bftrainer.replay.record.recorder import Recorder
from bftrainer.replay.record.storage import ReportDataError
from bftrainer.replay.tally import Result
from bftrainer.replay.workload import Submission
from bftrainer.traces import intervals
from bftrainer.traces.intervals import Interval

SETTINGS = EngineSettings(allocator="knapsack")
COSTS = RescaleCosts(up=Cost(stall_s=2.0, init_s=3.0), down=Cost(stall_s=1.0))
ENDLESS = 10**12


def job(samples: int = ENDLESS, at: float = 0.0, n_max: int = 4, model: str = "m") -> Submission:
    """Linear: 10 samples/s a node."""
    spec = TrainerSpec(
        name="t",
        command=(),
        n_min=1,
        n_max=n_max,
        samples=samples,
        curve=((n_max, n_max * 10.0),),
        costs=COSTS,
    )
    return Submission(at, spec, model)


def play(
    log: list[Interval], *jobs: Submission, end: float = 100.0, chosen: EngineSettings = SETTINGS
) -> tuple[Result, ReportData]:
    changes = intervals.changes(log, frozenset(i.node for i in log), 0.0, end)
    recorder = Recorder(0.0, end)
    result = replay(changes, jobs, chosen, 0.0, end, observer=recorder)
    figures = figures_of(result, jobs, chosen)
    return result, recorder.report_data("one", {"nodes": 2}, figures, result, jobs, chosen)


GROWS = [Interval(0.0, 100.0, "a"), Interval(20.0, 60.0, "b")]
"""a: initialises 0-3, stands 3-5, trains on; b: initialises 20-23, both stand 23-25, b leaves at 60, a
stands 60-61. Trained: 5-23 on 1, 25-60 on 2, 61-100 on 1."""


def test_a_record_of_growing_and_being_preempted() -> None:
    result, found = play(GROWS, job())
    m = found.moments
    assert m.time.tolist() == [0.0, 3.0, 20.0, 23.0, 60.0]
    assert m.pool.tolist() == [1, 1, 2, 2, 1]
    assert m.used.tolist() == [1, 1, 2, 2, 1]
    assert m.samples.tolist() == pytest.approx([0, 0, 150, 180, 180 + 700])
    assert m.linear_node_s.tolist() == pytest.approx([0, 0, 15, 18, 88])
    assert m.rescale_samples.tolist() == pytest.approx([0, 0, 0, 2 * 10, 20])
    assert m.preemption_samples.tolist() == pytest.approx([0, 0, 0, 0, 1 * 20])
    places = {name: i for i, name in enumerate(found.nodes)}
    stays = sorted(zip(*(column.tolist() for column in found.stays), strict=True))
    a, b = places["a"], places["b"]
    assert stays == sorted([(a, 0, 0, 100), (a, 1, 0, 100), (b, 0, 20, 60), (b, 1, 20, 60)])
    (row,) = found.trainers
    assert (row.submitted, row.started, row.ended, row.completed) == (0.0, 0.0, None, False)
    assert (row.samples, row.node_s, row.model) == (pytest.approx(1270), pytest.approx(140), "m")
    assert result.samples == pytest.approx(1270)


@pytest.mark.parametrize(("t_fwd_s", "refuted"), [(120.0, [1, 1, 0]), (40.0, [0, 1, 0]), (39.0, [0, 0, 0])])
def test_decisions_that_a_preemption_followed_within_t_fwd(t_fwd_s: float, refuted: list[int]) -> None:
    _, found = play(GROWS, job(), chosen=replace(SETTINGS, t_fwd_s=t_fwd_s))
    assert found.decisions.time.tolist() == [0.0, 20.0, 60.0]
    assert found.decisions.preempted.tolist() == refuted
    assert found.figures["decisions_preempted"] == sum(refuted)
    assert found.figures["decisions"] == 3


def test_a_trainer_that_loses_everything_pays_for_its_restart() -> None:
    """It trains on a from 5 on, loses it at 50 and starts on b at 70: 2 s at the 10 samples/s of before."""
    _, found = play([Interval(0.0, 50.0, "a"), Interval(70.0, 100.0, "b")], job())
    assert found.figures["preemption_samples"] == pytest.approx(2 * 10)
    assert found.figures["rescale_samples"] == 0.0


def test_growing_again_after_a_preemption_is_a_rescale() -> None:
    _, found = play([*GROWS, Interval(80.0, 100.0, "b")], job())
    assert found.figures["preemption_samples"] == pytest.approx(1 * 20)
    assert found.figures["rescale_samples"] == pytest.approx(2 * 10 + 2 * 10)


def test_windows_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 0-30: 40 node-seconds, 280 of 400 samples; the last one is shorter."""
    monkeypatch.setattr(windows, "window_s", lambda span: 30.0)
    _, found = play(GROWS, job())
    assert [(w.begin, w.end) for w in found.windows] == [(0, 30), (30, 60), (60, 90), (90, 100)]
    assert [w.nodes for w in found.windows] == pytest.approx([4 / 3, 2, 1, 1])
    assert [w.samples for w in found.windows] == pytest.approx([280, 600, 290, 100])
    assert [w.efficiency_u for w in found.windows] == pytest.approx([0.7, 1.0, 29 / 30, 1.0])
    assert [w.linear_efficiency for w in found.windows] == pytest.approx([0.7, 1.0, 29 / 30, 1.0])
    assert [w.rescale_samples for w in found.windows] == pytest.approx([20, 0, 0, 0])
    assert [w.preemption_samples for w in found.windows] == pytest.approx([0, 0, 20, 0])


def test_a_window_counts_only_what_was_left_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only trainer has 50 of 500 samples left at 50 and ends at 55: dedicated nodes do no more."""
    monkeypatch.setattr(windows, "window_s", lambda span: 50.0)
    _, found = play([Interval(0.0, 100.0, "a")], job(samples=500))
    assert [w.samples for w in found.windows] == pytest.approx([450, 50])
    assert [w.efficiency_u for w in found.windows] == pytest.approx([0.9, 1.0])


def test_a_window_counts_only_trainers_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one could use both nodes, but is over at 35; the second one uses one."""
    monkeypatch.setattr(windows, "window_s", lambda span: 50.0)
    log = [Interval(0.0, 100.0, "a"), Interval(0.0, 100.0, "b")]
    _, found = play(log, job(600), job(n_max=1), chosen=replace(SETTINGS, max_parallel=1))
    assert found.trainers[0].ended == pytest.approx(35.0)
    assert found.windows[1].efficiency_u == pytest.approx(1.0)
    assert found.windows[1].linear_efficiency == pytest.approx(0.5)


def test_windows_without_nodes_or_trainers_have_no_efficiency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "window_s", lambda span: 50.0)
    _, found = play([Interval(0.0, 50.0, "a")], job())
    assert [w.efficiency_u for w in found.windows] == [pytest.approx(0.9), None]
    _, found = play([Interval(0.0, 100.0, "a")])
    assert [(w.efficiency_u, w.linear_efficiency) for w in found.windows] == [(None, None)] * 2


def test_times_of_completed_trainers() -> None:
    """5-14.5 the first, then 17.5 to 19.5 the second stands, and trains until 29; the third never ends."""
    jobs = [job(95, model="k"), job(95, at=4.0), job(at=5.0)]
    result, found = play([Interval(0.0, 100.0, "a")], *jobs, chosen=replace(SETTINGS, max_parallel=1))
    assert [row.completed for row in found.trainers] == [True, True, False]
    figures = found.figures
    assert figures["runtime_h"]["mean"] * 3600 == pytest.approx((14.5 + 14.5) / 2)
    assert figures["turnaround_h"]["mean"] * 3600 == pytest.approx((14.5 + 25) / 2)
    assert {m: 3600 * h for m, h in figures["runtime_by_model_h"].items()} == pytest.approx(
        {"k": 14.5, "m": 14.5}
    )
    of_first = [figures_of(result, jobs, SETTINGS, n)["mean_turnaround_first_h"] for n in (None, 1, 2, 3)]
    assert of_first[0] is None
    assert of_first[1] == pytest.approx(14.5 / 3600)
    assert of_first[2] == pytest.approx(19.75 / 3600)
    assert of_first[3] is None


pieces = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(0, 90), st.integers(1, 60)), min_size=1, max_size=14
)
queue = st.lists(
    st.tuples(st.integers(0, 80), st.integers(50, 900), st.integers(1, 4)), min_size=1, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(pieces, queue, st.integers(1, 3))
def test_records_add_up(
    log: list[tuple[str, int, int]], submitted: list[tuple[int, int, int]], max_parallel: int
) -> None:
    found = [Interval(float(begin), float(begin + length), node) for node, begin, length in log]
    jobs = sorted((job(samples, float(at), n_max) for at, samples, n_max in submitted), key=lambda s: s.time)
    chosen = replace(SETTINGS, max_parallel=max_parallel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "window_s", lambda span: 37.0)
        result, kept = play(found, *jobs, chosen=chosen)
    changes = intervals.changes(found, frozenset(i.node for i in found), 0.0, 100.0)
    plain = replay(changes, jobs, chosen, 0.0, 100.0)
    assert plain.samples == result.samples
    lengths = kept.stays.end - kept.stays.begin
    assert (lengths > 0).all()
    assert lengths[kept.stays.trainer == 0].sum() == pytest.approx(result.tally.node_s)
    held = result.tally.node_s - result.tally.idle_node_s
    assert lengths[kept.stays.trainer > 0].sum() == pytest.approx(held)
    assert sum(row.node_s for row in kept.trainers) == pytest.approx(held)
    assert sum(w.samples for w in kept.windows) == pytest.approx(result.samples)
    assert sum(w.nodes * (w.end - w.begin) for w in kept.windows) == pytest.approx(result.tally.node_s)
    for name in ("rescale_samples", "preemption_samples"):
        assert sum(getattr(w, name) for w in kept.windows) == pytest.approx(kept.figures[name])
        assert kept.figures[name] == pytest.approx(getattr(kept.moments, name)[-1])
    assert (kept.moments.used <= kept.moments.pool).all()
    assert (kept.moments.time[1:] > kept.moments.time[:-1]).all()
    assert len(kept.decisions.time) == len(result.tally.decisions)


# --- files ---------------------------------------------------------------------------------------


def test_records_survive_files_and_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    _, kept = play(GROWS, job(), job(300))
    storage.write(kept, tmp_path / "a.json.gz")
    storage.write(kept, tmp_path / "b.json.gz")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    back = storage.read(tmp_path / "b.json.gz")
    for name in ("name", "begin", "end", "parameters", "figures", "nodes", "trainers", "windows"):
        assert getattr(back, name) == getattr(kept, name)
    for table in ("moments", "decisions", "stays"):
        for one, two in zip(getattr(back, table), getattr(kept, table), strict=True):
            assert one.tolist() == pytest.approx(two.tolist(), abs=0.001)
    assert {path.name for path in tmp_path.iterdir()} == {"a.json.gz", "b.json.gz"}


@pytest.mark.parametrize(
    "content",
    [
        b"junk",
        gzip.compress(b"junk", mtime=0),
        gzip.compress(b"[]", mtime=0),
        gzip.compress(b'{"format": "bftrainer replay 1"}', mtime=0),
        gzip.compress(json.dumps({"format": "bftrainer replay 99"}).encode(), mtime=0),
        gzip.compress(b"{}" * 500, mtime=0)[:-9],
    ],
)
def test_what_is_no_record_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json.gz").write_bytes(content)
    with pytest.raises(ReportDataError, match=r"x\.json\.gz: no record of a replay"):
        storage.read(tmp_path / "x.json.gz")


def test_a_record_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    _, kept = play(GROWS, job())
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportDataError, match="Name another place"):
        storage.write(kept, tmp_path / "file" / "x.json.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
