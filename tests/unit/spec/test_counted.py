"""What a spec's sizes count where whole nodes are shared out, and where GPUs are."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.model.policy import EngineSettings, Share
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import TrainerSpec
from bftrainer.spec.counted import counted
from bftrainer.spec.located_yaml import SpecError
from bftrainer.spec.parse import parse

GPUS = EngineSettings(share=Share.GPU, gpus_per_node=4)
BOTH = "curve: {local: [[1, 10], [4, 40]], across: [[1, 8], [8, 64]]}"


def spec_of(*lines: str) -> TrainerSpec:
    return parse("\n".join(("name: x", "command: [train]", *lines)), "spec.yaml", Path("/"))


def test_gpus_are_asked_for_instead_of_nodes() -> None:
    spec = spec_of("gpus: {min: 2, max: 8, multiple_of: 2}", BOTH, "scalability: given")
    assert (spec.gpus, spec.n_min, spec.n_max, spec.sizes) == (True, 2, 8, AllowedSizes(multiple_of=2))
    assert (spec.curve, spec.across) == (((1, 10.0), (4, 40.0)), ((1, 8.0), (8, 64.0)))
    assert counted(spec, GPUS) is spec


def test_where_whole_nodes_are_shared_out_gpus_are_refused() -> None:
    with pytest.raises(
        SpecError, match=r"gpus: 'x' asks for 1 to 4 GPUs, and whole nodes are shared out here"
    ):
        counted(spec_of("gpus: {max: 4}"), EngineSettings())


def test_nodes_are_counted_in_their_gpus_and_stay_whole() -> None:
    spec = counted(spec_of("nodes: {sizes: [1, 3]}", "curve: [[1, 10], [3, 30]]"), GPUS)
    assert (spec.n_min, spec.n_max, spec.sizes.listed, spec.whole) == (4, 12, (4, 12), 4)
    assert spec.curve == ((4, 10.0), (12, 30.0))
    assert counted(spec_of("nodes: {max: 2, workers: 4}"), GPUS).whole == 4


def test_other_workers_than_one_a_gpu_are_refused() -> None:
    with pytest.raises(SpecError, match=r"nodes.workers: 2: each GPU is a worker's here .* a node has 4"):
        counted(spec_of("nodes: {max: 2, workers: 2}"), GPUS)


@pytest.mark.parametrize("launcher", ["native", "torchrun", "horovod"])
def test_all_launchers_may_ask_for_gpus(launcher: str) -> None:
    spec = spec_of("gpus: {max: 4}", f"launcher: {launcher}")
    assert counted(spec, GPUS) is spec


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["gpus: {max: 2}", "nodes: {max: 2}"], "there are both nodes and gpus. Keep one: nodes: "),
        (["weight: 1.0"], "there is neither nodes nor gpus. Give one: nodes: "),
        (["gpus: {max: 2, workers: 2}"], "gpus: workers: 2: each GPU has one worker. Leave workers out"),
        (["nodes: {max: 2}", BOTH, "scalability: given"], "Give both, and gpus"),
        (["gpus: {max: 2}", BOTH], "what is measured does not tell local from across"),
        (["gpus: {max: 2}", "curve: {local: [[1, 1]]}"], "two curves over GPUs: {local: ..., across: ...}"),
        (["gpus: {max: 2}", "curve: {local: 1, across: [[1, 1]]}", "scalability: given"], "curve: 1: "),
        (["gpus: '3'"], "gpus: '3': expected further keys: min, max"),
    ],
)
def test_errors_say_what_to_do(lines: list[str], told: str) -> None:
    with pytest.raises(SpecError) as refused:
        spec_of(*lines)
    assert told in str(refused.value)


def test_trainers_take_turns_on_whole_nodes_alone() -> None:
    spec = spec_of("nodes: 4", "share: time", "memory_gb: 2.5")
    assert (spec.takes_turns, spec.memory) == (True, 2_500_000_000)
    assert counted(spec, EngineSettings()) is spec
    with pytest.raises(SpecError, match=r"share: time: 'x' would take turns on whole nodes"):
        counted(spec, GPUS)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("nodes: 4", "share: time", "launcher: torchrun"), "under launcher: torchrun take no turns"),
        (("gpus: {max: 4}", "share: time"), "leave gpus out, or share"),
        (("nodes: 4", "share: time", "curves: {fat: [[1, 2]]}"), "leave curves out, or share"),
        (("nodes: 4", "memory_gb: 2"), "memory_gb: 2 says who can share nodes; add share: time"),
        (("nodes: 4", "share: time", "memory_gb: 0"), "memory_gb: 0: input should be greater than 0"),
        (("nodes: 4", "share: space"), "share: 'space': input should be 'time'"),
    ],
)
def test_turns_that_cannot_be_taken_are_told_with_a_remedy(lines: tuple[str, ...], said: str) -> None:
    with pytest.raises(SpecError) as error:
        spec_of(*lines)
    assert said in str(error.value)
