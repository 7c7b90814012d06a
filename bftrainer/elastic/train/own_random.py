"""Random generators that a data set has of its own: every node draws the same numbers from them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from bftrainer.elastic import warned
from bftrainer.elastic.train.same_data import data_sets

KINDS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


def warn_of_generators(data: Any) -> None:
    """Warn of generators that a map-style data set, or one within it, keeps in its attributes.

    A stream has to be the same on all nodes, so there they are in place.
    """
    data = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(data, IterableDataset):
        return
    own = (
        f"{name}.{attribute}"
        for name, one in data_sets(data)
        for attribute, value in getattr(one, "__dict__", {}).items()
        if isinstance(value, KINDS)
    )
    for called in own:
        warned.warn(
            f"the data set has a random generator of its own ({called}). If it draws from that while the "
            "script trains, as for augmentation, every node draws the same numbers, and a node that joins "
            "begins them anew. Draw from Python's, NumPy's or PyTorch's global generators, which the "
            "run seeds for each node, or from a generator made of the epoch and the sample's index",
        )
        return
