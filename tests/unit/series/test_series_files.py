"""A trainer's course as a picture and for TensorBoard."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from bftrainer.errors import BftrainerError
from bftrainer.series import picture, tensorboard
from bftrainer.series.points import lasting, points_of
from tests.unit.series.test_points import row

POINTS = points_of([row(10, 100.0, loss=1.0), row(20, 105.0, loss=9.0), row(15, 110.0, None, loss=0.5)])


def test_a_picture_is_drawn_whatever_names_figures_have(tmp_path: Path) -> None:
    points = points_of([row(1, **{"$x_{": 1.0, "a" * 100: 2.0}), row(2)])
    assert picture.draw(points, tmp_path / "a.png", "t$x_{") == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    many = {f"f{n}": 1.0 for n in range(picture.MOST + 2)}
    assert picture.draw(points_of([row(1, **many)]), tmp_path / "b.svg", "many") == 2


def test_a_picture_without_a_figure_has_the_nodes(tmp_path: Path) -> None:
    assert picture.draw(points_of([row(1)]), tmp_path / "a.svg", "t") == 0
    assert "<svg" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(
    ("over", "label", "at"),
    [
        ("step", "step", [10, 15]),
        ("samples", "samples", [POINTS[0].samples, POINTS[2].samples]),
        ("time", "hours", [0.0, 10 / 3600]),
    ],
)
def test_figures_are_over_steps_samples_or_the_time(over: str, label: str, at: list[float]) -> None:
    places, said = picture._places(lasting(POINTS), picture.PlotOver(over))
    assert (said, places) == (label, pytest.approx(at))


def test_a_picture_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BftrainerError, match="another place to write to"):
        picture.draw(POINTS, tmp_path / "none" / "a.png", "t")


def scalars(folder: Path, tag: str) -> list[tuple[int, float, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return [(e.step, e.value, e.wall_time) for e in EventAccumulator(str(folder)).Reload().Scalars(tag)]


def test_tensorboard_reads_what_is_exported(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    assert tensorboard.export(POINTS, tmp_path / "t-1") == 2
    assert scalars(tmp_path / "t-1", "loss") == [(10, 1.0, 100.0), (15, 0.5, 110.0)]
    assert scalars(tmp_path / "t-1", "bftrainer/samples_per_s") == [(10, 8.0, 100.0)]
    assert scalars(tmp_path / "t-1", "bftrainer/nodes")[0] == (10, 2.0, 100.0)


def test_an_export_takes_the_place_of_the_one_before_and_of_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "events.out.tfevents.1.other").write_bytes(b"")
    tensorboard.export(POINTS[:1], tmp_path)
    tensorboard.export(POINTS, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert [step for step, *_ in scalars(tmp_path, "loss")] == [10, 15]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("")
    with pytest.raises(BftrainerError, match=r"--tensorboard .*file/t-1"):
        tensorboard.export(POINTS, tmp_path / "file" / "t-1")


def test_without_tensorboard_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordinary = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("tensorboard."):
            raise ModuleNotFoundError("No module named 'tensorboard'")
        return ordinary(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BftrainerError, match="pip install tensorboard"):
        tensorboard.export(POINTS, tmp_path)
    assert not list(tmp_path.iterdir())
