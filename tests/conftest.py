"""Tests depend neither on how fast a machine is (speed lives in benchmarks/) nor on its site's settings."""

import os
import signal
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("bftrainer", deadline=None)
settings.load_profile("bftrainer")
signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # a process that was started in the background ignores it
os.environ["BFTRAINER_SITE_CONFIG"] = "/nonexistent/config.yaml"


def pytest_make_parametrize_id(config: pytest.Config, val: Any, argname: str) -> str | None:
    """Name bytes by their argument: packed ones hold the time, and all workers must collect the same."""
    return argname if isinstance(val, bytes) else None
