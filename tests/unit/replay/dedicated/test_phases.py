"""The epochs of a measured program take as long as the model that its measurements were made from says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bftrainer.performance.goodput import GoodputModel
from bftrainer.replay.dedicated.phases import phases_of
from bftrainer.replay.dedicated.programs import ProfileError, read_program
from tests.support.measured_programs import EPOCH_STEPS, SYSTEM, write_csv, write_program


def test_an_epoch_has_the_batch_of_highest_goodput(tmp_path: Path) -> None:
    program = read_program(write_program(tmp_path / "p"))
    found = phases_of(program, 4, 4)
    model = GoodputModel(SYSTEM, program.limits, 64.0)
    nodes = np.arange(1, 5)
    expected = EPOCH_STEPS * program.limits.initial / model.best(nodes, 4 * nodes).goodput
    assert found.seconds == pytest.approx(np.repeat(expected[:, np.newaxis], 3, axis=1))
    assert found.alone_s == pytest.approx(EPOCH_STEPS * program.limits.initial / model.alone)
    assert found.utilities[:, 0] == pytest.approx(model.speedup(nodes, 4 * nodes) / (4 * nodes))


def test_more_nodes_than_were_measured_or_can_be_used_are_refused(tmp_path: Path) -> None:
    program = read_program(write_program(tmp_path / "p", batches=(16, 64)))
    with pytest.raises(ProfileError, match=r"17 nodes of 1 GPUs: at most 16 nodes.*--max-nodes"):
        phases_of(program, 1, 17)
    with pytest.raises(ProfileError, match="16 workers can share its largest batch"):
        phases_of(program, 4, 5)


def test_a_hole_in_the_measurements_is_named(tmp_path: Path) -> None:
    folder = write_program(tmp_path / "p")
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    write_csv(folder / "scalability.csv", columns, [(3, 12, 4, 1.0, 0.5), (3, 12, 64, 1.0, 0.5)])
    with pytest.raises(ProfileError, match=r"nothing was measured of workers placed \(4, 4, 4, 4\)"):
        phases_of(read_program(folder), 4, 4)
