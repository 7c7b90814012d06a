"""Checks that the settings allow what `share: gpu` asks of LSF. Pure."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise

from bftrainer.settings.values import Settings

ONE = re.compile(r"(?:[^:]+:)*num=1(?:/host)?(?::[^:]+)*")
"""A value of bsub's -gpu that asks for one GPU."""


def why_not(settings: Settings) -> str:
    """Return why the daemon cannot share out single GPUs, and what to set; "" if it can, or is not to."""
    if settings.share != "gpu":
        return ""
    if settings.lsf_submission != "plain":
        return (
            f"share: gpu: with lsf_submission: {settings.lsf_submission} LSF gives a pilot a whole host; set "
            "lsf_submission: plain, or leave share out"
        )
    if settings.lsf_gpus == 0:
        return (
            "share: gpu: lsf_gpus: 0 says that hosts have no GPUs; leave lsf_gpus out (auto), or set it to "
            "the number of GPUs of each host"
        )
    words = [*shlex.split(settings.lsf_options), ""]
    own = next((after for word, after in pairwise(words) if word == "-gpu"), None)
    if own is not None and not ONE.fullmatch(own):
        return (
            f"share: gpu: each pilot has one GPU, and lsf_options asks for -gpu {own!r}; write num=1 there, "
            "such as -gpu num=1:mode=shared, or take -gpu out"
        )
    return ""
