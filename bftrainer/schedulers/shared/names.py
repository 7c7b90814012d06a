"""What pilots are called in a batch system: the name tells whose they are, even where a submission was never
confirmed."""

from __future__ import annotations

import re

from bftrainer.model.gpus import SEPARATOR, node_of

PREFIX = "bftrainer-"
TAG = re.compile(r"[0-9a-f]{32}")
NAME = re.compile(rf"{PREFIX}[0-9a-f]{{8}}-{TAG.pattern}(?:{SEPARATOR}[0-9]{{1,4}})?")
"""The names of pilots, of any daemon: every other job is a main job. That of a pilot with one GPU of a node
ends in the GPU's number."""


def job_name(instance: str, tag: str, node: str = "") -> str:
    """The name of a daemon's pilot on this node, or with this GPU of one."""
    return f"{PREFIX}{instance}-{tag}{node.removeprefix(node_of(node))}"
