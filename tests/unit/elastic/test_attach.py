"""What a script on torchrun or Horovod tells its agent, in a test's own process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bftrainer.elastic.attach.job import Job
from bftrainer.elastic.horovod import mend
from bftrainer.elastic.process import warnings
from bftrainer.elastic.process.metrics import CountSpeed
from bftrainer.elastic.process.refusal import RefusedError
from bftrainer.elastic.state.checkpoint import CheckpointError
from bftrainer.launch import messages as launched_orders
from bftrainer.launch.job import LaunchedTrainer, WorkerView
from bftrainer.launch.messages import Folders
from bftrainer.model.sizes import EVERY_SIZE, AllowedSizes
from bftrainer.model.trainer import TrainerSpec
from tests.support.agent_end import agent_of, until


def test_the_first_step_in_every_world_is_told_though_its_size_is_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with agent_of(monkeypatch, tmp_path, samples=100) as (agent, orders):
        job = Job(orders)
        for step, world in ((1, 1), (2, 1), (3, 2)):
            monkeypatch.setattr(mend, "worlds", world)
            job.progress(step=step, samples=10 * step, size=2)
        job.done(step=3, samples=30)
        until(lambda: any(message["type"] == "finished" for message in agent.hear()))
        resumed = [message for message in agent.hear() if message["type"] == "resumed"]
    assert [(message["world"], message["step"]) for message in resumed] == [(1, 0), (2, 2)]


def test_a_script_says_how_many_samples_its_whole_training_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with agent_of(monkeypatch, tmp_path) as (agent, orders):
        job = Job(orders)
        for wrong in (0, -5, 2.5, float("nan"), "many"):
            with pytest.raises(ValueError, match=r"Give the samples of the whole training, .*BFT-125"):
                job.progress(step=1, samples=10, of=wrong)  # type: ignore[arg-type]
        job.progress(step=1, samples=10, of=500)
        job.done(step=2, samples=20)
        until(lambda: len(agent.hear()) >= 4)
        told = {message["type"]: message.get("of") for message in agent.hear()}
        assert told == {"attached": None, "resumed": 500, "progress": 500, "finished": 500}
        job.progress(step=3, samples=30, size=2, of=10**18)  # as good as endless
        until(lambda: agent.hear()[-1]["step"] == 3)
        assert agent.hear()[-1]["of"] is None


def test_counts_that_are_no_counts_are_refused_and_floats_and_numpys_are_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The daemon would drop each report of them, and nobody would be told."""
    with agent_of(monkeypatch, tmp_path) as (agent, orders):
        job = Job(orders)
        for wrong in (2.5, -1, float("nan"), float("inf"), "many", None):
            with pytest.raises(ValueError, match=r"samples=.* is no count. Give whole numbers .*BFT-227"):
                job.progress(step=1, samples=wrong)  # type: ignore[arg-type]
        count = torch.tensor(9).numpy().sum()  # a number of NumPy's
        job.progress(step=count, samples=40.0)  # type: ignore[arg-type]
        until(lambda: agent.hear() and agent.hear()[-1]["type"] == "progress")
        assert (agent.hear()[-1]["step"], agent.hear()[-1]["samples"]) == (9, 40)


def test_a_count_that_goes_back_is_told_of_once_and_no_speed_is_negative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warnings, "_last", list[str]())
    speed = CountSpeed()
    counted = [(0, 0.0), (100, 1.0), (100, 1.5), (300, 2.0), (0, 3.0), (100, 4.0), (50, 5.0)]
    rates = [speed.rate(int(now) % 4, samples, 1000.0 + now) for samples, now in counted]
    assert rates == [None, 100.0, 100.0, 200.0, None, 100.0, None]
    assert [text.partition(".")[0] for text in warnings.last()] == [
        "the script's count of samples goes back, from 300 to 0",
        "the script's count of steps goes back, from 3 to 0",
    ]


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_process_that_ends_tells_exactly_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_saved: bool
) -> None:
    with agent_of(monkeypatch, tmp_path, samples=100) as (agent, orders):
        job = Job(orders)
        for step in (1, 2, 3):  # faster than reports are sent
            job.progress(step=step, samples=10 * step, epoch=step - 1)
        if is_saved:
            job.saved(step=3, samples=30)
        job._say_last()
        wanted = "left" if is_saved else "progress"
        until(lambda: agent.hear()[-1]["type"] == wanted and agent.hear()[-1]["samples"] == 30)
        assert agent.hear()[-1]["epoch"] == 2


def test_a_script_finds_the_folder_for_its_checkpoints(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Many write there with torch.save alone."""
    with agent_of(monkeypatch, tmp_path / "new" / "checkpoints") as (_, orders):
        job = Job(orders)
        assert job.checkpoint_dir is not None
        torch.save({}, job.checkpoint_dir / "last.pt")


def test_what_was_saved_last_is_loaded_and_said_with_the_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(None, tmp_path / "checkpoints")
    assert job.load() is None
    for step in (1, 2, 3):
        assert job.save({"weight": torch.full((2,), step), "step": step}, step=step, samples=10 * step)
    found = Job(None, tmp_path / "checkpoints").load()
    assert found is not None and found["step"] == 3 and found["weight"].tolist() == [3, 3]
    assert len(list((tmp_path / "checkpoints").glob("*.pt"))) == 2
    (line,) = capsys.readouterr().err.splitlines()
    about = rf"resumed from step 3, of a checkpoint in {re.escape(str(tmp_path / 'checkpoints'))}"
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d bftrainer: {about}", line)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_next_checkpoint_is_due_as_late_on_ranks_that_write_none(
    rank: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One rank on which it is due would have all of them save, in every step."""
    job = Job(None, tmp_path)
    job._state._saved_at -= 1_000
    monkeypatch.setattr(sys.modules[Job.__module__], "_rank", lambda: rank)
    assert job.save({"step": 1}, step=1, samples=10) is (rank == 0)
    assert job._state.age_s < 1_000


def test_a_process_killed_while_it_saves_leaves_the_checkpoint_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Killed(BaseException):
        pass

    def killed(snapshot: Any, file: Any) -> None:
        file.write(b"half")
        raise Killed

    Job(None, tmp_path).save({"step": 1}, step=1, samples=10)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(torch, "save", killed)
        Job(None, tmp_path).save({"step": 2}, step=2, samples=20)
    assert Job(None, tmp_path).load() == {"step": 1}


def test_a_state_that_could_not_be_loaded_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    job = Job(None, tmp_path)
    with pytest.raises(CheckpointError, match=r"(?s)cannot be read back.*Save tensors, numbers.*BFT-210"):
        job.save({"job": Path()}, step=1, samples=10)
    assert job.load() is None


def test_a_script_by_hand_without_a_folder_saves_nothing(tmp_path: Path) -> None:
    job = Job(None)
    assert not job.save({"step": 1}, step=1, samples=10) and job.load() is None


def test_the_state_saved_at_a_stop_is_told_as_what_the_next_run_goes_on_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with agent_of(monkeypatch, tmp_path, samples=100) as (agent, orders):
        job = Job(orders)
        assert not job.should_stop() and not job.should_save()
        job.save({}, step=1, samples=10)
        job._stop.set()
        assert job.should_stop() and job.should_save()
        job.save({}, step=2, samples=20)
        until(lambda: any(message["type"] == "left" for message in agent.hear()))
        heard = [(message["type"], message.get("step")) for message in agent.hear()]
    assert heard == [("attached", None), ("left", 2)]


@pytest.mark.parametrize("every", [1, 3])
def test_a_stop_and_a_checkpoint_wait_for_gradients_that_add_up(tmp_path: Path, every: int) -> None:
    """They would be in no checkpoint: the next start would begin with the batch after theirs."""
    job = Job(None, tmp_path)
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    said = []
    for batch in range(1, 2 * every + 1):
        net(torch.ones(1, 1)).sum().backward()
        if batch % every == 0:
            optimizer.step()
            optimizer.zero_grad()
        if batch > every:
            job._stop.set()
        said.append((job.should_stop(), job.should_save()))
    assert said == [*(2 * every - 1) * [(False, False)], (True, True)]


RANK = """
import os, sys, time
import torch.distributed as dist
from bftrainer import elastic
job = elastic.attach()
rank, store = int(os.environ["RANK"]), "file://" + sys.argv[1]
dist.init_process_group("gloo", init_method=store, world_size=2, rank=rank)
step = 0
print("ready", flush=True)
while not job.should_stop():
    step += 1
    time.sleep(0.01)
print(step, job.stopping, job.should_save(), flush=True)
"""


def test_all_ranks_stop_after_the_same_step_though_only_one_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RANK, str(tmp_path / "store")]
    environ = {**os.environ, "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(command, env={**environ, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    try:
        for rank in ranks:
            assert rank.stdout is not None and rank.stdout.readline() == "ready\n"
        time.sleep(0.05)  # in the middle of some step
        ranks[1].send_signal(signal.SIGTERM)
        said = [rank.communicate(timeout=60)[0].split() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert said[0][0] == said[1][0], "the number of the last step"
    assert [saves for _, _, saves in said] == ["True", "True"]


@pytest.mark.parametrize(
    ("allowed", "sizes"),
    [
        (EVERY_SIZE, [2, 3, 4, 5, 6]),
        (AllowedSizes(multiple_of=2), [2, 4, 6]),
        (AllowedSizes(listed=(2, 3, 6)), [2, 3, 6]),
    ],
)
def test_a_script_is_told_the_numbers_of_nodes_that_its_spec_allows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, allowed: AllowedSizes, sizes: list[int]
) -> None:
    spec = TrainerSpec(name="a", command=("a",), n_min=2, n_max=6, sizes=allowed)
    launched = LaunchedTrainer(1, spec)
    launched.put("n1", WorkerView(1))
    how = launched_orders.StartConfig(grace_s=1.0, gated=True, warm=True, metrics=9)
    start = launched_orders.start(launched, "n1", Folders(trainer_dir=str(tmp_path), store_id="s"), how)
    told = json.loads(
        json.dumps({key: start["worker"][key] for key in ("n_min", "n_max", "sizes", "multiple_of")})
    )
    with agent_of(monkeypatch, tmp_path, **told) as (_, orders):
        assert list(Job(orders).sizes) == sizes
        assert Job(orders).nodes == (2, 6)


@pytest.mark.parametrize("call", ["progress", "should_stop"])
def test_a_script_whose_processes_form_no_group_fails_at_its_first_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with agent_of(monkeypatch, tmp_path) as (agent, orders):
        job = Job(orders)
        told = "this run has 2 processes, but torch.distributed counts 1: each would train by itself"
        with pytest.raises(RuntimeError, match=told):
            job.progress(step=1, samples=8) if call == "progress" else job.should_stop()
        until(lambda: agent.hear()[-1]["type"] == "failed")
        assert agent.hear()[-1]["generation"] == 1 and told in agent.hear()[-1]["reason"]


def test_what_a_framework_counts_is_compared_with_the_ranks_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    told = pytest.raises(RuntimeError, match=r"Lightning counts 2: .*elastic\.arguments\(\)")
    with agent_of(monkeypatch, tmp_path) as (_, orders), told:
        Job(orders).check_ranks(Lightning=2)
    state = SimpleNamespace(
        is_initialized=lambda: True, PartialState=lambda: SimpleNamespace(num_processes=3)
    )
    monkeypatch.setitem(sys.modules, "accelerate.state", state)
    told = pytest.raises(RuntimeError, match=r"accelerate counts 3: .*use_cpu=True")
    with agent_of(monkeypatch, tmp_path) as (_, orders), told:
        Job(orders).progress(step=1, samples=8)
    Job(None).check_ranks(Lightning=2)  # by hand there are as many as the script likes


def test_only_what_is_refused_fails_the_trainer_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with agent_of(monkeypatch, tmp_path) as (agent, orders):
        Job(orders)
        for error in (ValueError("the disk is full"), RefusedError("give no other batch size")):
            sys.excepthook(type(error), error, None)
        until(lambda: agent.hear()[-1]["type"] == "failed")
        failed = [heard["reason"] for heard in agent.hear() if heard["type"] == "failed"]
        assert failed == ["give no other batch size"]
