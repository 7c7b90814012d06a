"""What pilots are called in a batch system: the name tells whose they are, even where a submission was never
confirmed."""

from __future__ import annotations

import re

PREFIX = "bftrainer-"
TAG = re.compile(r"[0-9a-f]{32}")
NAME = re.compile(rf"{PREFIX}[0-9a-f]{{8}}-{TAG.pattern}")
"""The names of pilots, of any daemon: every other job is a main job."""


def job_name(instance: str, tag: str) -> str:
    """The name of a daemon's pilot."""
    return f"{PREFIX}{instance}-{tag}"
