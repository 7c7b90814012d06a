"""Reads `bhosts -gpu` and `lshosts -gpu`: the GPUs of hosts, one a line. Pure.

The name of a host stands in the first line of its GPUs; the others begin with blanks. Titles differ in case
and number between the commands and the versions of LSF, and the first three columns are the same.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from bftrainer.schedulers.lsf.rows import Gpus
from bftrainer.schedulers.lsf.values import HOST_NAME
from bftrainer.schedulers.shared.text import TextError

TITLES = ["HOST_NAME", "GPU_ID"]
MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
MOST_ID = 3
"""The most digits of a GPU's number."""


def gpus(text: str) -> dict[str, Gpus]:
    """The GPUs of each host that has some. A GPU in slices (MIG) has several lines and counts once.

    Raises:
        TextError: the line of titles is missing, as where the command does not know the option.
    """
    lines = text.split("\n")
    at = next((i for i, line in enumerate(lines) if line.upper().split()[:2] == TITLES), None)
    if at is None:
        raise TextError(f"no line HOST_NAME GPU_ID in {text[:80]!r}")
    found: dict[str, dict[str, str]] = defaultdict(dict)
    host = ""
    for line in lines[at + 1 :]:
        words = line.split()
        if line[:1].strip() and words:
            host = words.pop(0)
        if HOST_NAME.fullmatch(host) and words and words[0].isdecimal() and len(words[0]) <= MOST_ID:
            found[host].setdefault(words[0], words[1] if len(words) > 1 else "")
    return {host: Gpus(len(ids), _model(ids)) for host, ids in found.items()}


def _model(ids: dict[str, str]) -> str:
    """The model of most."""
    ((model, _),) = Counter(ids.values()).most_common(1)
    return model if MODEL.fullmatch(model) else ""
