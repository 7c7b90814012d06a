"""Under torchrun: whether all ranks have the same training data, and the data of the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.data import IterableDataset

from bftrainer.elastic.attach.collectives import highest
from bftrainer.elastic.checks.same_data import difference, digest, entries
from bftrainer.elastic.process.warnings import note_warning
from bftrainer.messages.ranks import DATA_CHANGED, RANKS_DATA


def warn_of_other_data(data: Any, before: Mapping[str, str]) -> dict[str, str]:
    """Tell where the training's data set is not that of all ranks, or not that of the checkpoint. All ranks
    must call it.

    Args:
        data: the data set; of a stream nothing is known.
        before: what this has returned to the process that wrote the checkpoint; empty if there is none.

    Returns:
        What the data set consists of, in short, for checkpoints.
    """
    mine = {} if data is None or isinstance(data, IterableDataset) else entries(data)
    number = digest(mine)
    if highest([number, -number]) != [number, -number]:
        note_warning(RANKS_DATA.say())
    if told := difference(mine, before):
        note_warning(DATA_CHANGED.say(difference=told))
    return mine
