"""The worker's side of the rescaling protocol: make before break.

When the daemon publishes a membership, its members form a group in the background while they train on in
the old one. At every step they tell each other which generation they could switch to. As soon as all
offer the same one, all switch, at the same step boundary. If a member dies meanwhile, only this attempt
fails: the next published generation will be without it. If the old group itself breaks, the survivors
wait for the next generation and switch to it at once.
"""

from __future__ import annotations

import base64
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import torch

from bftrainer.elastic.members.group import Group, GroupBroken, form
from bftrainer.elastic.members.nccl import accelerate
from bftrainer.elastic.members.patience import Patience
from bftrainer.elastic.members.rendezvous import CalledOff, Rendezvous
from bftrainer.elastic.process import startup_times
from bftrainer.elastic.process.background import calling, start
from bftrainer.elastic.process.channel import AGENT_GONE, Channel, Orders


class Leave(Exception):  # noqa: N818  not an error: an order
    """This worker must leave: its trainer ends, or goes on without it."""


def is_left_behind(members: tuple[str, ...], published: Published) -> bool:
    """True if a group of `members` cannot complete a step any more, judging by a newer membership.

    Either a member is lost, or the same members are published once more, because the group is broken for one
    of them. A worker that learns of it here need not wait for an error of the network, which may never come.
    """
    gone = set(members) - {*published.members, *published.leaving}
    return bool(gone) or members == published.members


class Membership:
    """Follows the published memberships. The training loop's thread asks it, the channel's thread feeds it.

    `device` is where the model is: with NCCL, groups are formed for it. `patience` is this member's.
    """

    def __init__(self, orders: Orders, device: torch.device, patience: Patience) -> None:
        self._orders, self._device, self._patience = orders, device, patience
        self._changed = threading.Condition()
        self._published = Published(0, (), ())
        self._formed: Group | None = None
        self._entered: tuple[Group, Published] | None = None  # and its members
        self._rendezvous: Rendezvous | None = None
        self._stopped = False
        self._busy_until: float | None = None
        self.on_written: Callable[[dict[str, Any]], None] = lambda message: None
        """The channel's thread calls it for snapshots that the agent is done with."""
        self.channel = Channel(orders.fd, self._receive, closed=lambda: os._exit(AGENT_GONE))

    # for the training loop

    def offer(self, generation: int, holders: Collection[int]) -> int:
        """The generation to which this member of `generation` could switch right now; else `generation`.

        `holders`: the ranks that have the state. While none of them stays, but one that is receiving it, no
        member offers to switch: the state would be lost with those that leave.
        """
        with self._changed:
            published = self._published
            if self._stopped:
                return generation + 1  # alone, that is agreed; with others, they will break away
            is_ready = self._orders.node in published.leaving or (
                self._formed is not None and self._formed.generation == published.generation
            )
            switches = is_ready and published.generation != generation and self._keeps_state(holders)
            return published.generation if switches else generation

    def _keeps_state(self, holders: Collection[int]) -> bool:
        if self._entered is None:
            return True
        present, staying = self._entered[1], set(self._published.members)
        return staying.isdisjoint(present.members) or not staying.isdisjoint(present.of_ranks(holders))

    def switch(self, generation: int) -> Group:
        """The group of a generation that all members have offered.

        Raises:
            Leave: the generation is without this worker.
            GroupBroken: a newer generation has been published meanwhile; wait for that with `next`.
        """
        with self._changed:
            if self._stopped or self._orders.node in self._published.leaving:
                raise Leave
            if self._formed is None or self._formed.generation != generation:
                raise GroupBroken(f"generation {generation} has been overtaken")
            return self._enter(self._formed)

    def next(self, generation: int) -> Group:
        """Wait for a group of a generation after `generation`. For a worker without a working group.

        Raises:
            Leave: this worker must leave.
        """
        with self._changed:
            while True:
                if self._stopped or self._orders.node in self._published.leaving:
                    raise Leave
                if self._formed is not None and self._formed.generation > generation:
                    return self._enter(self._formed)
                self._changed.wait()

    @property
    def dissolved(self) -> bool:
        """True if perhaps no member stays: the published membership is empty, or this worker was stopped."""
        with self._changed:
            return self._stopped or not self._published.members

    def _enter(self, group: Group) -> Group:
        self._entered = group, self._published
        return group

    def nodes(self, ranks: Collection[int]) -> int:
        """Number of nodes of these ranks of the present group."""
        return self._entered[1].nodes(ranks) if self._entered is not None else len(ranks)

    def busy(self, seconds: float) -> None:
        """Tell the others, through agents and daemon, that this member is busy for `seconds` at most.

        0: not any more. Those that join meanwhile learn it, too.
        """
        with self._changed:
            self._busy_until = time.monotonic() + seconds if seconds else None
            self._say_busy(seconds)

    def _say_busy(self, seconds: float) -> None:
        self.channel.send("busy", generation=self._published.generation, seconds=seconds)

    # fed by the channel

    def _receive(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "regroup":
            self._publish(
                Published(
                    message["generation"],
                    tuple(message["members"]),
                    tuple(message["leaving"]),
                    tuple(message.get("workers", ())),
                )
            )
        elif kind == "kv":
            with self._changed:
                store = self._rendezvous if message["generation"] == self._published.generation else None
            if store is not None:
                store.arrive(message["key"], base64.b64decode(message["value"]))
        elif kind == "busy":
            self._patience.heard(message["node"], message["seconds"])
        elif kind == "written":
            self.on_written(message)
        elif kind == "stop":
            with self._changed:
                self._stopped = True
                self._changed.notify_all()

    def _publish(self, published: Published) -> None:
        with self._changed:
            if published.generation <= self._published.generation:
                return
            if self._rendezvous is not None:
                self._rendezvous.call_off()
            self._rendezvous = self._formed = None
            self._published = published
            startup_times.reached("published")
            self._patience.keep(published.members)
            if self._busy_until is not None:
                self._say_busy(max(0.0, self._busy_until - time.monotonic()))
            if self._entered is not None and is_left_behind(self._entered[1].members, published):
                self._entered[0].fail(f"generation {published.generation} goes on without it")
            if self._orders.node in published.members:
                self._rendezvous = Rendezvous(
                    lambda key, value: self.channel.send(
                        "kv",
                        generation=published.generation,
                        key=key,
                        value=base64.b64encode(value).decode(),
                    )
                )
                start(calling()(partial(self._form, published, self._rendezvous)), "bftrainer-form")
            self._changed.notify_all()

    def _form(self, published: Published, store: Rendezvous) -> None:
        rank = published.rank(self._orders.node, self._orders.local_rank)
        try:
            group = form(
                store,
                published.generation,
                rank,
                published.size,
                self._orders.address,
                self._patience,
            )
            group = accelerate(group, store, self._device, self._orders.address)
        except CalledOff:
            return
        except GroupBroken as error:
            self.channel.send("broken", generation=published.generation, reason=str(error)[:300])
            return
        with self._changed:
            if self._published.generation == published.generation:
                self._formed = group
                startup_times.reached("connected")
                self._changed.notify_all()
            else:
                group.close()


@dataclass(frozen=True, slots=True)
class Published:
    """A membership as the daemon published it: nodes in rank order, those that leave, and how many workers
    each member runs; empty where each runs one."""

    generation: int
    members: tuple[str, ...]
    leaving: tuple[str, ...]
    workers: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of workers that the members run."""
        return sum(self.workers) if self.workers else len(self.members)

    def rank(self, node: str, local_rank: int) -> int:
        """The rank of a worker of a member.

        Raises:
            ValueError: the node is no member.
        """
        return sum(self._counts[: self.members.index(node)]) + local_rank

    def nodes(self, ranks: Iterable[int]) -> int:
        """Number of nodes of these ranks."""
        return len(self.of_ranks(ranks))

    def of_ranks(self, ranks: Iterable[int]) -> set[str]:
        """The nodes of these ranks."""
        ends = list(accumulate(self._counts))
        return {self.members[bisect_right(ends, rank)] for rank in ranks}

    @property
    def _counts(self) -> Sequence[int]:
        return self.workers or (1,) * len(self.members)
