"""Tests of `ddp=True` are skipped where PyTorch's DDP cannot have it: before 2.7."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from bftrainer.elastic.train.overlapped import OWN

needs_ddp = pytest.mark.skipif(
    not OWN.keys() <= inspect.signature(DistributedDataParallel).parameters.keys(),
    reason=f"ddp needs PyTorch 2.7 or later, this is {torch.__version__}",
)
WITHOUT_AND_WITH = (False, pytest.param(True, marks=needs_ddp))
