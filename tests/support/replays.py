"""What tests of replays share: generated logs, workloads on disk, a linear trainer."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from bftrainer.model.events import NodesChanged
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import Cost, RescaleCosts, TrainerSpec
from bftrainer.traces.synthetic import onoff

ENDLESS = 10**12
SETTINGS = EngineSettings(allocator="knapsack")
COSTS = RescaleCosts(up=Cost(stall_s=2.0, init_s=3.0), down=Cost(stall_s=1.0))
JOBS = "job,Tcup,Tcdw,Jmin,Jmax,Pmax,Tsub,model\n"
CURVES = "model,nodes,images_per_s\nm,0,0\nm,2,30.5\nm,1,20\nk,4,1\n"


def generated(nodes: int, end: float, seed: int = 0) -> list[NodesChanged]:
    return list(takewhile(lambda change: change.time < end, onoff.changes(nodes, seed=seed)))


def write(tmp_path: Path, jobs: str, curves: str = CURVES, name: str = "jobs.csv") -> tuple[Path, Path]:
    (tmp_path / name).write_text(jobs)
    (tmp_path / "curves.csv").write_text(curves)
    return tmp_path / name, tmp_path / "curves.csv"


def trainer(samples: int = ENDLESS, n_min: int = 1, n_max: int = 4, rate: float = 10.0) -> TrainerSpec:
    """Linear: `rate` samples/s a node."""
    return TrainerSpec(
        name="t",
        command=(),
        n_min=n_min,
        n_max=n_max,
        samples=samples,
        curve=((n_max, n_max * rate),),
        costs=COSTS,
    )
