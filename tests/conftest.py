"""Tests depend neither on how fast a machine is (speed lives in benchmarks/) nor on its site's settings."""

import os

from hypothesis import settings

settings.register_profile("bftrainer", deadline=None)
settings.load_profile("bftrainer")
os.environ["BFTRAINER_SITE_CONFIG"] = "/nonexistent/config.yaml"
