"""GPUs of different types that one trainer could get."""

from __future__ import annotations

import pytest

from bftrainer.model.finding import Level
from bftrainer.schedulers.slurm.check.mixed_gpus import count_finding, gpu_finding, lost_finding
from bftrainer.schedulers.slurm.check.partitions import of_lines
from tests.unit.schedulers.test_slurm_check import settings


def nodes(**gres: str) -> str:
    return "\n".join(f"NodeName={n} Gres={g} State=IDLE Partitions=batch,backfill" for n, g in gres.items())


TWO = {"n1": "gpu:a100:4(S:0-1)", "n2": "gpu:a100:2", "n3": "gpu:v100:4", "n4": "(null)"}


@pytest.mark.parametrize(
    ("gres", "classes", "level", "said"),
    [
        ({"n1": "(null)"}, {}, Level.OK, "none on the nodes"),
        ({"n1": "gpu:a100:4", "n2": "gpu:a100:2"}, {}, Level.OK, "a100 on n[1-2]"),
        (TWO, {}, Level.WARNING, "a100 on n[1-2]; v100 on n3: a trainer could mix them"),
        (TWO, {"a": "n[1-2]", "v": "n3"}, Level.OK, "v100 on n3"),
        (TWO, {"v": "n3"}, Level.OK, "v100 on n3"),
        (TWO, {"a": "n1", "v": "n[2-3]"}, Level.WARNING, "mix"),
        ({"n1": "gpu:a100:2,gpu:v100:2"}, {}, Level.WARNING, "a100 and v100 on n1: workers of one node"),
        ({"n1": "gpu:4", "n2": "gpu:a100:4"}, {}, Level.WARNING, "no type on n1: a trainer could"),
    ],
)
def test_types_that_one_trainer_could_get(
    gres: dict[str, str], classes: dict[str, str], level: Level, said: str
) -> None:
    known = of_lines(nodes(**gres), "NodeName")
    finding = gpu_finding(settings(node_classes=classes), known, "backfill")
    assert (finding.level, said in finding.found) == (level, True), finding
    if level is Level.WARNING and gres is TWO:
        assert 'set node_classes to {"a100": "n[1-2]", "v100": "n3"}' in finding.remedy


def test_nodes_where_no_pilot_goes_do_not_count() -> None:
    known = of_lines(nodes(**TWO), "NodeName")
    assert gpu_finding(settings(), known, "other").level is Level.OK


@pytest.mark.parametrize(
    ("each", "gres", "level", "said"),
    [
        (4, {"n1": "gpu:a100:4", "n2": "(null)"}, Level.OK, "GPUs: 0 on n2; 4 on n1"),
        (1, {"n1": "gpu:a100:4", "n2": "gpu:a100:4"}, Level.WARNING, "set gpus_per_node: 4"),
        (4, {"n1": "gpu:a100:4", "n2": "gpu:a100:2"}, Level.WARNING, "have trainers ask for gpus"),
    ],
)
def test_the_number_of_gpus_of_a_node_is_known(
    each: int, gres: dict[str, str], level: Level, said: str
) -> None:
    known = of_lines(nodes(**gres), "NodeName")
    own = settings(share="gpu", harvest="gpus", gpus_per_node=each)
    (finding,) = count_finding(own, known, "backfill")
    assert finding.level is level
    assert said in finding.found + finding.remedy
    assert count_finding(settings(), known, "backfill") == []


def test_nodes_that_slurm_has_taken_out_for_want_of_a_gpu_are_named() -> None:
    row = {"Partitions": "main,backfill", "Gres": "gpu:a100:2"}
    out = {**row, "State": "IDLE+DRAIN+INVALID_REG"}
    known = {"n1": out, "n2": out, "n3": {**row, "State": "IDLE+DRAIN"}, "n4": {**out, "Partitions": "other"}}
    (finding,) = lost_finding(known, "backfill")
    assert finding.level is Level.WARNING and finding.found.startswith("n[1-2]: Slurm found less there")
    assert finding.remedy.endswith("then scontrol update NodeName=n[1-2] State=RESUME")
    assert lost_finding({"n3": known["n3"]}, "backfill") == []
