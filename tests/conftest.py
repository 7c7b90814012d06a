"""Tests depend neither on how fast a machine is (speed lives in benchmarks/) nor on its site's settings."""

import os
import signal

from hypothesis import settings

settings.register_profile("bftrainer", deadline=None)
settings.load_profile("bftrainer")
signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # a process that was started in the background ignores it
os.environ["BFTRAINER_SITE_CONFIG"] = "/nonexistent/config.yaml"
