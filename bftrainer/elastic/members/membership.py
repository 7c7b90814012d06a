"""The worker's side of the rescaling protocol: make before break.

When a membership is published, its group is formed in the background while the members train on in
the old one. At every step they tell each other which generation they could switch to; only when all
offer the same one does everybody switch, at the same step boundary. A member that dies meanwhile
only breaks the attempt: the next published generation will be without it. When the old group itself
breaks, the survivors wait for the next generation and switch to it at once.
"""

from __future__ import annotations

import base64
import os
import threading
from dataclasses import dataclass
from typing import Any

import torch

from bftrainer.elastic.members.channel import AGENT_GONE, Channel, Orders
from bftrainer.elastic.members.group import CalledOff, Group, GroupBroken, Rendezvous, form
from bftrainer.elastic.members.nccl import accelerate


class Leave(Exception):  # noqa: N818  not an error: an order
    """This worker is not wanted any more."""


@dataclass(frozen=True, slots=True)
class Published:
    """A membership as the daemon published it, in rank order."""

    generation: int
    members: tuple[str, ...]
    leaving: tuple[str, ...]


def is_left_behind(members: tuple[str, ...], published: Published) -> bool:
    """Whether a group of `members` cannot come to the end of a step any more: somebody in it is lost, or
    the same membership is published once more, because the group is broken for somebody.

    Who learns of that here need not wait for the network to tell, which it never may.
    """
    gone = set(members) - {*published.members, *published.leaving}
    return bool(gone) or members == published.members


class Membership:
    """Follows the published memberships; used by the training loop's thread, fed by the channel's."""

    def __init__(self, orders: Orders, device: torch.device) -> None:
        self._orders, self._device = orders, device
        self._changed = threading.Condition()
        self._published = Published(0, (), ())
        self._formed: Group | None = None
        self._entered: tuple[Group, tuple[str, ...]] | None = None  # and its members
        self._rendezvous: Rendezvous | None = None
        self._stopped = False
        self.channel = Channel(orders.fd, self._receive, closed=lambda: os._exit(AGENT_GONE))

    # for the training loop

    def offer(self, generation: int) -> int:
        """The generation that this member of `generation` could switch to right now."""
        with self._changed:
            published = self._published
            if self._stopped:
                return generation + 1  # alone, that is agreed; with others, they will break away
            if self._orders.node in published.leaving:
                return published.generation
            if self._formed is not None and self._formed.generation == published.generation:
                return published.generation
            return generation

    def switch(self, generation: int) -> Group:
        """The group of a generation that all have offered.

        Raises:
            Leave: the generation is without this worker.
            GroupBroken: the generation has been overtaken meanwhile; wait for the next.
        """
        with self._changed:
            if self._stopped or self._orders.node in self._published.leaving:
                raise Leave
            if self._formed is None or self._formed.generation != generation:
                raise GroupBroken(f"generation {generation} has been overtaken")
            return self._enter(self._formed)

    def next(self, generation: int) -> Group:
        """Wait for a group of a generation after `generation`; for who has no group that works.

        Raises:
            Leave: this worker is to go.
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
        """Whether nobody may be left to go on: the published membership is empty, or we were stopped."""
        with self._changed:
            return self._stopped or not self._published.members

    def _enter(self, group: Group) -> Group:
        self._entered = group, self._published.members
        return group

    # fed by the channel

    def _receive(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "regroup":
            self._publish(
                Published(message["generation"], tuple(message["members"]), tuple(message["leaving"]))
            )
        elif kind == "kv":
            with self._changed:
                store = self._rendezvous if message["generation"] == self._published.generation else None
            if store is not None:
                store.arrive(message["key"], base64.b64decode(message["value"]))
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
            if self._entered is not None and is_left_behind(self._entered[1], published):
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
                threading.Thread(
                    target=self._form, args=(published, self._rendezvous), name="bftrainer-form", daemon=True
                ).start()
            self._changed.notify_all()

    def _form(self, published: Published, store: Rendezvous) -> None:
        rank = published.members.index(self._orders.node)
        try:
            group = form(store, published.generation, rank, len(published.members), self._orders.address)
            group = accelerate(group, store, self._device)
        except CalledOff:
            return
        except GroupBroken as error:
            self.channel.send("broken", generation=published.generation, reason=str(error)[:300])
            return
        with self._changed:
            if self._published.generation == published.generation:
                self._formed = group
                self._changed.notify_all()
            else:
                group.close()
