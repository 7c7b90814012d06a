"""Every launcher passes the same contract: with real processes, and the simulated one.

`make test` tells every story with the simulated launcher, and with the native one those that no other test
with real processes has. Of torchrun and Horovod it tells those in which code of their own decides
(`stories.EVERY_COMMIT`); `make nightly` tells the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from bftrainer.testing.launcher import LauncherContract
from bftrainer.testing.launcher_story import begin, ends_well, until_lost, until_trains_on
from tests.support.live_world import LiveWorld, live
from tests.support.simulated_world import SimulatedWorld
from tests.support.stories import EVERY_COMMIT, NIGHTLY, SEVERAL, nightly_but, stories


class TestSimulatedLauncher(LauncherContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[SimulatedWorld]:
        world = SimulatedWorld(tmp_path)
        yield world
        world.close()


@nightly_but(stories() - NIGHTLY["native"].keys())
class TestNativeLauncher(LauncherContract):
    @pytest.fixture
    def world(self) -> Iterator[LiveWorld]:
        with live("native", "count.py", keeps_steps=True, gated=False) as world:
            yield world

    def test_a_joiner_dies_before_its_script_is_ready(self, world: LiveWorld) -> None:
        begin(world, "a")
        world.hold("b", "start")
        world.change(give="b")
        world.until(lambda: world.held("b", "start"), "b's script has begun")
        world.kill_worker("b")
        world.release("b", "start")
        until_lost(world, "b")
        until_trains_on(world, "a", "b")
        ends_well(world, "join")


@nightly_but(SEVERAL["native"])
class TestNativeLauncherWithTwoWorkersANode(LauncherContract):
    @pytest.fixture
    def world(self) -> Iterator[LiveWorld]:
        with live("native", "count.py", keeps_steps=True, gated=False, workers=2) as world:
            yield world


@nightly_but(())
class TestNativeLauncherThatTakesTurns(LauncherContract):
    @pytest.fixture
    def world(self) -> Iterator[LiveWorld]:
        with live("native", "count.py", keeps_steps=True, gated=False, share="time", memory_gb=1) as world:
            yield world


@nightly_but(EVERY_COMMIT["torchrun"])
class TestTorchrunLauncher(LauncherContract):
    @pytest.fixture
    def world(self) -> Iterator[LiveWorld]:
        with live("torchrun", "count_torchrun.py", keeps_steps=False, gated=True) as world:
            yield world


@pytest.mark.skipif(find_spec("horovod") is None, reason="Horovod is not installed; run make horovod")
@nightly_but(EVERY_COMMIT["horovod"])
class TestHorovodLauncher(LauncherContract):
    @pytest.fixture
    def world(self) -> Iterator[LiveWorld]:
        with live("horovod", "count_horovod.py", keeps_steps=True, gated=True) as world:
            yield world


@nightly_but(SEVERAL["torchrun"])
class TestTorchrunLauncherWithTwoWorkersANode(LauncherContract):
    @pytest.fixture
    def world(self) -> Iterator[LiveWorld]:
        with live("torchrun", "count_torchrun.py", keeps_steps=False, gated=True, workers=2) as world:
            yield world


@pytest.mark.skipif(find_spec("horovod") is None, reason="Horovod is not installed; run make horovod")
@nightly_but(SEVERAL["horovod"])
class TestHorovodLauncherWithTwoWorkersANode(LauncherContract):
    @pytest.fixture
    def world(self) -> Iterator[LiveWorld]:
        with live("horovod", "count_horovod.py", keeps_steps=True, gated=True, workers=2) as world:
            yield world


def test_what_the_native_launcher_tells_at_night_are_stories() -> None:
    assert NIGHTLY["native"].keys() < stories()


@pytest.mark.parametrize("launcher", EVERY_COMMIT)
def test_the_selection_names_every_story_once(launcher: str) -> None:
    assert EVERY_COMMIT[launcher].keys() | NIGHTLY[launcher].keys() == stories()
    assert not EVERY_COMMIT[launcher].keys() & NIGHTLY[launcher].keys()
