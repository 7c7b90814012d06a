"""Training scripts that attack: each is one user's, and another user's trainer runs beside it."""

from __future__ import annotations

import pytest

from tests.support.hostile.world import BAD, World

KINDS = ("surrogates", "forged", "reports", "joining", "names", "giant", "never", "children", "printing")


@pytest.mark.parametrize("kind", KINDS)
def test_no_script_harms_daemon_main_jobs_or_other_trainers(world: World, kind: str) -> None:
    with world.watched() as watch:
        world.bad(kind)
        watch.until_jobs(3)
    watch.assert_unharmed()
    world.cancel(BAD)
    assert not world.left_of("hostile.py")
