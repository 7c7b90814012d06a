"""Seeds of random numbers, from seed, step and rank: a rescale repeats none."""

from __future__ import annotations

import hashlib
import random
import sys

import torch


def derived(seed: int, step: int, rank: int) -> int:
    """A seed of 63 bits that differs between steps and between ranks."""
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def reseed(seed: int, step: int, rank: int) -> None:
    """Seed Python's, NumPy's (where it is in use) and PyTorch's generators, those of GPUs included."""
    chosen = derived(seed, step, rank)
    random.seed(chosen)
    torch.manual_seed(chosen)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(chosen % 2**32)


def reseed_here(step: int, rank: int) -> None:
    """Like `reseed`, with the seed that PyTorch has in this process: a script that seeds itself, and goes on
    at a step in a new process, would draw the numbers of its first steps once more."""
    reseed(torch.initial_seed() % 2**63, step, rank)
