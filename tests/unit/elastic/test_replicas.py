"""Ranks that train apart are found by their weights, and those that average in any way are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from torch.distributed import TCPStore

from bftrainer.elastic.programs.tcp_store import open_store
from tests.support.site import SCRIPTS

APART = "the ranks do not train one model: parameter "
READS_ALL = "each of the 2 ranks reads all training data by itself"
AT_EASE = (
    "ddp",
    "gradients_by_hand",
    "averaged_every_step",
    "averaged_every_8",
    "zero_redundancy",
    "sharded",
    "sharded_1",
    "sharded_1_as_they_were",
    "parts_of_a_pipeline",
    "adversaries",
    "half_precision",
    "shared_data",
    "own_shares",
    "unknown_data",
)
WARNED = {
    "never": APART,
    "never_with_other_starts": APART,
    "never_with_a_small_rate": APART,
    "never_for_few_steps": APART,
    "never_in_one_of_two": APART,
    "all_data_on_each": READS_ALL,
    "split_anew": "the ranks do not have the same training data",
}
TAKEN_BACK = ("averaged_every_50",)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[str]]]:
    """What rank 0 of two was warned of in each case."""
    folder = tmp_path_factory.mktemp("ranks")
    store = open_store("127.0.0.1")
    try:
        TCPStore("127.0.0.1", store.port, is_master=False)
    except RuntimeError:
        pytest.skip("this PyTorch has no libuv: no worker of torchrun can join a store")
    cases = [*AT_EASE, *WARNED, *TAKEN_BACK]
    command = [sys.executable, str(SCRIPTS / "ranks_apart.py"), str(folder), *cases]
    environ = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2"}
    environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    ranks = [subprocess.Popen(command, env={**environ, "RANK": str(rank)}) for rank in (0, 1)]
    try:
        assert [rank.wait(240) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    assert all(json.loads((folder / f"{case}.1").read_text())["last"] == [] for case in cases), (
        "rank 0 tells it"
    )
    return {case: json.loads((folder / f"{case}.0").read_text()) for case in cases}


@pytest.mark.parametrize("case", AT_EASE)
def test_ranks_that_train_one_model_are_not_warned(case: str, told: dict[str, dict[str, list[str]]]) -> None:
    assert told[case] == {"told": [], "last": []}


@pytest.mark.parametrize("case", WARNED)
def test_ranks_that_train_apart_or_on_all_data_are_warned_once(
    case: str, told: dict[str, dict[str, list[str]]]
) -> None:
    (warning,) = told[case]["last"]
    assert warning.startswith(WARNED[case])
    assert len(told[case]["told"]) == 1
    assert len(warning) < 500, "reports have all of it"
    assert ("call its set_epoch(epoch)" in warning) == (case == "all_data_on_each")


@pytest.mark.parametrize("case", TAKEN_BACK)
def test_a_warning_is_taken_back_once_ranks_have_averaged(
    case: str, told: dict[str, dict[str, list[str]]]
) -> None:
    first, last = told[case]["told"]
    assert first[0].startswith(APART) and last == []
