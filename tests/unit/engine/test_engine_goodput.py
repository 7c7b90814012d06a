"""Where goodput counts, nodes go to those whose larger batches are worth something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bftrainer.model.events import Measured
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import AdaptingBatch, Points
from bftrainer.performance import adapting
from tests.support.engine_world import World

BATCH = AdaptingBatch(batch=64, at_once=512, initial=64, most=4096, most_at_once=512, workers=1, noise=None)


def told(world: World, trainer: int, noise: float | None, batch: int = 512) -> bool:
    """A window of a trainer, as its run has it whatever the noise; returns whether nodes are shared anew."""
    t = world.trainer(trainer)
    n = len(t.members)
    rate = batch / (0.02 + 0.001 * batch / n)
    own = replace(BATCH, batch=batch, noise=noise)
    event = Measured(time=0.0, trainer=trainer, generation=t.published, point=(n, rate), batch=own)
    return world.take(event).plan is not None


def settled(objective: str, noises: tuple[float | None, float | None]) -> tuple[int, int]:
    """How many nodes of 8 two trainers have in the end whose speeds are the same."""
    world = World(EngineSettings(objective=objective, t_fwd_s=1e4))
    for trainer in (1, 2):
        world.submit(trainer, curve=None, n_max=8, command=("train", str(trainer)))
    world.nodes(joined="abcdefgh")
    for _ in range(6):
        for trainer, noise in zip((1, 2), noises, strict=True):
            if joining := world.trainer(trainer).joining:
                world.ready(trainer, "".join(sorted(joining)))
            for batch in (128, 512):
                told(world, trainer, noise, batch)
    return len(world.trainer(1).nodes), len(world.trainer(2).nodes)


def test_who_has_more_noise_gets_more_nodes() -> None:
    quiet, noisy = settled("goodput", (10.0, 10_000.0))
    assert quiet + noisy == 8 and quiet < noisy
    assert settled("goodput", (10_000.0, 10.0)) == (noisy, quiet)
    assert settled("efficiency", (10.0, 10_000.0)) == (4, 4)
    quiet_mixed, noisy_mixed = settled("0.8*goodput + 0.2*efficiency", (10.0, 10_000.0))
    assert quiet <= quiet_mixed < noisy_mixed


def test_who_has_no_noise_counts_with_its_speed_and_keeps_nodes() -> None:
    assert settled("goodput", (None, None)) == (4, 4)
    some, _ = settled("goodput", (None, 10_000.0))
    assert some > 0


@pytest.mark.parametrize(("objective", "expected"), [("goodput", True), ("efficiency", False)])
def test_another_noise_leads_to_another_plan_where_goodput_counts(objective: str, expected: bool) -> None:
    world = World(EngineSettings(objective=objective)).running("ab", curve=None, n_max=2)
    told(world, 1, 100.0)
    told(world, 1, 100.0)
    assert told(world, 1, 10_000.0) is expected


@pytest.mark.parametrize(("settings", "expected"), [("throughput", False), ("goodput", True)])
def test_models_of_steps_are_fitted_only_where_goodput_counts(
    settings: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[object]()
    goodputs = adapting.goodputs

    def noted(own: Sequence[adapting.AskedGoodput]) -> list[Points]:
        asked.extend(own)
        return goodputs(own)

    monkeypatch.setattr(adapting, "goodputs", noted)
    world = World(EngineSettings(objective=settings)).running("ab", curve=None, n_max=2)
    told(world, 1, 100.0)
    world.submit(2, curve=None)
    assert bool(asked) is expected
