"""Chooses the nodes for main jobs in a thread of its own: thousands of claims may come at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from bftrainer.model.machine import Claim
from bftrainer.model.trainer import Points, Trainer
from bftrainer.nodes import vacate


class ClaimedNodes:
    """`trainers` are those that may hold nodes; `curves` estimates the samples/s by nodes of trainers, in our
    thread."""

    def __init__(
        self,
        trainers: Callable[[], Sequence[Trainer]],
        curves: Callable[[Sequence[Trainer]], Mapping[int, Points]],
    ) -> None:
        self._trainers, self._curves = trainers, curves
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="claims")
        self._thread.submit(int)  # it begins now: later the machine may have no thread for us

    async def choose(
        self,
        claims: Sequence[Claim],
        held: frozenset[str],
        releasing: frozenset[str],
        since: Mapping[str, float],
    ) -> frozenset[str]:
        """See `vacate.choose`. The event loop goes on meanwhile, so that what is held may have changed."""
        active = self._trainers()

        def chosen() -> frozenset[str]:
            trainers = tuple(trainer for trainer in active if trainer.nodes)
            return vacate.choose(claims, held, trainers, self._curves(trainers), releasing, since)

        return await asyncio.get_running_loop().run_in_executor(self._thread, chosen)

    def close(self) -> None:
        """Let go of the thread; what waits for it is given up."""
        self._thread.shutdown(wait=False, cancel_futures=True)
