"""Measurements are read as they are, and interpolated between."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.errors import BftrainerError
from bftrainer.replay.dedicated.programs import ProfileError, read_program
from tests.support.measured_programs import SYSTEM, write_csv, write_program


def test_times_are_those_measured_and_linear_between(tmp_path: Path) -> None:
    program = read_program(write_program(tmp_path / "p"))
    step, sync = program.times((4,), 16)
    assert step == pytest.approx(float(SYSTEM.iteration_time(1, 4, 16)))
    assert step - sync == pytest.approx(float(SYSTEM.gradient_time(16)))
    assert program.times((4,), 10)[0] == pytest.approx((program.times((4,), 4)[0] + step) / 2)


def test_a_ring_may_begin_at_any_of_its_nodes(tmp_path: Path) -> None:
    program = read_program(write_program(tmp_path / "p"))
    assert program.times((4, 1), 16) == program.times((1, 4), 16)


def test_sizes_that_were_not_placed_are_interpolated(tmp_path: Path) -> None:
    program = read_program(write_program(tmp_path / "p"))
    step, _ = program.times((4, 4, 4, 4), 16)
    assert step == pytest.approx(float(SYSTEM.iteration_time(4, 16, 16)))
    assert program.times((2, 2, 2, 2), 16)[0] < step


def test_limits_are_those_of_the_measurements(tmp_path: Path) -> None:
    limits = read_program(write_program(tmp_path / "p")).limits
    assert (limits.initial, limits.most, limits.local_least, limits.local_most) == (16, 256, 4, 64)
    assert read_program(write_program(tmp_path / "yolov3", local=(4, 8, 64))).limits.local_most == 8


def test_gradients_and_iterations_are_linear_between_batches(tmp_path: Path) -> None:
    folder = write_program(tmp_path / "p")
    columns = ("progress", "iteration", "metric", "grad_sqr", "grad_var")
    write_csv(folder / "validation-64.csv", columns, [(100 * e, 40 * e, 0, 3.0, 8.0) for e in (1, 2, 3)])
    program = read_program(folder)
    assert program.gradients(16, 0) == (1.0, 4.0)
    assert program.gradients(40, 0) == (2.0, 6.0)
    assert program.iterations(40, 1) == pytest.approx((200 + 80) / 2)
    assert (program.progress(0), program.progress(3)) == (0.0, 300.0)


@pytest.mark.parametrize(("placement", "batch"), [((4,), 3), ((4,), 65), ((4, 4, 4, 4), 1000)])
def test_nothing_is_made_up_beyond_the_measurements(
    tmp_path: Path, placement: tuple[int, ...], batch: int
) -> None:
    program = read_program(write_program(tmp_path / "p"))
    with pytest.raises(ProfileError, match="nothing was measured"):
        program.times(placement, batch)
    with pytest.raises(ProfileError, match="none of 16 to 256"):
        program.gradients(257, 0)


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("placements.csv", "placement,local_bsz,step_time\n1,4,0.1\n", "no column sync_time"),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n", "no measurement"),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n1,4,x,0\n", ":2: .* Give numbers"),
        (
            "placements.csv",
            "placement,local_bsz,step_time,sync_time\n1,4,nan,0\n",
            ":2: .* from 0",
        ),
        (
            "placements.csv",
            "placement,local_bsz,step_time,sync_time\n1,4,-1,0\n",
            ":2: .* from 0",
        ),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n104,4,1,0\n", "placement 104"),
        ("placements.csv", f"placement,local_bsz,step_time,sync_time\n{'1' * 300},4,1,0\n", "placement"),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n1,1e9,1,0\n", "lower the one"),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n1,4,1,1\n", "is not below step_time"),
        ("scalability.csv", "num_nodes\n", "no column"),
        ("validation-64.csv", "progress,iteration,grad_sqr,grad_var\n5,1,0,0\n", "both 0 in a row"),
        ("validation-64.csv", "progress,iteration,grad_sqr,grad_var\n5,1,1,1\n5,2,1,1\n", "does not rise"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, file: str, text: str, says: str) -> None:
    folder = write_program(tmp_path / "p")
    (folder / file).write_text(text)
    with pytest.raises(BftrainerError, match=says) as error:
        read_program(folder)
    assert str(folder) in str(error.value)


def test_too_few_measurements_to_interpolate_between_are_an_error(tmp_path: Path) -> None:
    folder = write_program(tmp_path / "p")
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    write_csv(folder / "scalability.csv", columns, [(3, 3, 4, 1.0, 0.5)])
    write_csv(folder / "placements.csv", ("placement", *columns[2:]), [(1, 4, 1.0, 0.5), (2, 4, 1.0, 0.5)])
    with pytest.raises(ProfileError, match="nothing was measured"):
        read_program(folder).times((4, 4), 4)


@pytest.mark.parametrize("file", ["placements.csv", "scalability.csv"])
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    folder = write_program(tmp_path / "p")
    (folder / file).unlink()
    with pytest.raises(BftrainerError, match=file):
        read_program(folder)


def test_a_program_without_a_training_says_what_is_missing(tmp_path: Path) -> None:
    folder = write_program(tmp_path / "p", batches=())
    with pytest.raises(ProfileError, match="no validation-BATCH"):
        read_program(folder)
