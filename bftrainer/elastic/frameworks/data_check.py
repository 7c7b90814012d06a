"""Under torchrun: whether all ranks have the same training data, and the data of the checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from torch.utils.data import IterableDataset

from bftrainer.elastic.attach.collectives import highest
from bftrainer.elastic.checks.same_data import difference, entries
from bftrainer.elastic.process.warnings import note_warning
from bftrainer.messages.ranks import DATA_CHANGED, RANKS_DATA


def tell_of_other_data(data: Any, before: Mapping[str, str]) -> dict[str, str]:
    """Tell where the training's data set is not that of all ranks, or not that of the checkpoint. All ranks
    have to call it.

    Args:
        data: the data set; of a stream nothing is known.
        before: what this has returned to the process that wrote the checkpoint; empty if there is none.

    Returns:
        What the data set consists of, in short, for checkpoints.
    """
    mine = {} if data is None or isinstance(data, IterableDataset) else entries(data)
    digest = _digest(mine)
    if highest([digest, -digest]) != [digest, -digest]:
        note_warning(RANKS_DATA.say())
    if told := difference(mine, before):
        note_warning(DATA_CHANGED.say(difference=told))
    return mine


def _digest(found: Mapping[str, str]) -> int:
    """The same on all ranks that have the same data, but for rounding."""
    text = json.dumps(_rounded({name: json.loads(entry) for name, entry in found.items()}), sort_keys=True)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return f"{value:.2g}" if isinstance(value, float) else value
