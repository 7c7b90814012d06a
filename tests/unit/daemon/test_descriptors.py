"""How file descriptors are shared out, and which connections the daemon serves with few of them."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from bftrainer.daemon.descriptors import METRICS_CONNECTIONS, RESERVE, share


def test_where_there_is_room_the_settings_count() -> None:
    needed = 512 + 10_000 + RESERVE + METRICS_CONNECTIONS
    assert (share(512, 10_000, needed).users, share(512, 10_000, needed).agents) == (512, 10_000)
    assert share(512, 10_000, needed).reason == ""


@pytest.mark.parametrize("available", [64, 256, 1024, 4096, 10_000])
@pytest.mark.parametrize(("users", "agents"), [(512, 10_000), (100_000, 16), (8, 1_000_000)])
def test_where_there_is_not_enough_is_left_for_the_schedulers_commands(
    available: int, users: int, agents: int
) -> None:
    found = share(users, agents, available)
    if found.reason:
        assert str(available) in found.reason and "LimitNOFILE" in found.reason
        left = available - found.users - found.agents - METRICS_CONNECTIONS
        assert left >= min(RESERVE, available // 2) - METRICS_CONNECTIONS
        assert found.is_short == (found.users < users or found.agents < min(agents, 1000))
    assert 2 <= found.users <= users and 1 <= found.agents <= agents


@pytest.mark.parametrize(("soft", "hard", "wanted", "found"), [(100, 500, 300, 300), (100, 200, 300, 200)])
def test_the_soft_limit_is_raised_as_far_as_it_is_needed_and_allowed(
    soft: int, hard: int, wanted: int, found: int
) -> None:
    code = (
        "import resource; from bftrainer.daemon.descriptors import available;"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}));"
        f"print(available({wanted}), resource.getrlimit(resource.RLIMIT_NOFILE)[0], available(50))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(found)] * 3
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > wanted
