"""Between the agents' connections and the rest of the daemon: what agents are sent, and what they report."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bftrainer.model.reports import Message
from bftrainer.model.trainer import TrainerSpec
from bftrainer.nodes.losses import Losses
from bftrainer.nodes.pilots import Pilots
from bftrainer.ports import Launcher
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.wire.hub import Hub
from bftrainer.wire.messages.from_agent import Devices, DevicesChanged


def devices_text(devices: Devices | None) -> str:
    """Return a pilot's devices in words, and those out of use; empty if none or not known."""
    if devices is None or not devices.kind:
        return ""
    out = f"; out of use: {'; '.join(devices.out)}" if devices.out else ""
    return f"{devices.count} {devices.kind}{out}"


class AgentLink:
    """Implements `ports.Link`. `user_of` says as which user a trainer's pilots run."""

    def __init__(self, hub: Hub, pilots: Pilots, user_of: Callable[[TrainerSpec], str]) -> None:
        self._hub, self._pilots, self._user_of = hub, pilots, user_of

    def serves(self, node: str, spec: TrainerSpec) -> bool:
        """Return whether a node has an agent of the trainer's user, which may run the trainer's program."""
        return self._hub.connected(node) and self._pilots.runs_as(node, self._user_of(spec))

    def devices(self, node: str) -> int:
        """Return how many devices a node's pilot has that can be used."""
        found = self._hub.devices(node)
        return found.count if found is not None else 0

    def has_devices(self, node: str, devices: Devices) -> None:
        """Note what devices a node's pilot has from now on."""
        self._hub.has_devices(node, devices)

    def devices_of(self, node: str) -> Devices | None:
        """Return what a node's agent has said of its pilot's devices."""
        return self._hub.devices(node)

    def send(self, node: str, message: Message) -> None:
        """Send a message without waiting; nothing happens if the node has no agent."""
        self._hub.send(node, message)


class AgentReports:
    """Implements `wire.hub.AgentEvents`: what agents report goes to the launcher, or gives their nodes
    back.

    `trainers_on` gives the trainers that may have workers on a node. `has_gpus` gets node, user and number of
    a pilot's GPUs, and the number of workers that these are too few for. Until `opened`, agents are asked to
    come again.
    """

    def __init__(
        self,
        link: AgentLink,
        pilots: Pilots,
        losses: Losses,
        launcher: Launcher,
        trainers_on: Callable[[str], Mapping[int, TrainerSpec]],
        telemetry: Telemetry,
        has_gpus: Callable[[str, str, int, str], None],
    ) -> None:
        self._has_gpus = has_gpus
        self._link, self._pilots, self._losses, self._launcher = link, pilots, losses, launcher
        self._trainers_on, self._telemetry = trainers_on, telemetry
        self.opened = False
        self._out: dict[str, tuple[str, ...]] = {}  # node -> what was told of devices out of use

    def is_open(self) -> bool:
        """Return whether agents may come in."""
        return self.opened

    def up(self, node: str, tag: str, inventory: list[Message]) -> bool | None:
        """An agent has connected; it may stay if its pilot is ours and is not being released. None: its pilot
        may have landed there, and the scheduler has not said so yet."""
        if self._pilots.known(node, tag) is None and self._pilots.records.awaits(tag):
            return None
        if self._pilots.known(node, tag) is None or node in self._pilots.records.releasing:
            self._telemetry.trouble("agent", "it belongs to no pilot of ours: sent away", node=node)
            return False
        self._pilots.reports(node)
        self._tell_devices(node)
        there = self._trainers_on(node)
        wanted = {id_ for id_, spec in there.items() if self._link.serves(node, spec)}
        self._launcher.agent_up(node, inventory, wanted)
        return True

    def _tell_devices(self, node: str) -> None:
        """Tell admins of devices that the node's agent has taken out of use, once of each change."""
        devices = self._link.devices_of(node)
        out = tuple(devices.out) if devices is not None else ()
        if devices is not None and out and out != self._out.get(node):
            left = f"{devices.count} {devices.kind} devices are left"
            self._telemetry.trouble("agent", f"a device is out of use: {'; '.join(out)}; {left}", node=node)
        self._out[node] = out
        pilot = self._pilots.records.pilots.get(node)
        if devices is not None and pilot is not None:
            self._has_gpus(node, pilot.user, devices.count, self._for_whom(node, devices))

    def _for_whom(self, node: str, devices: Devices) -> str:
        """For how many workers a node has too few devices, in words; empty if for none."""
        there = self._trainers_on(node).values()
        workers = max((spec.workers for spec in there if self._link.serves(node, spec)), default=0)
        if not 0 < devices.count < workers:
            return ""
        has = f"{devices.count} devices ({devices.kind})"
        return f"the pilot on {node} has {has}: too few for {workers} workers, which get other nodes"

    def down(self, node: str) -> None:
        """An agent's connection is gone."""
        self._losses.agent_down(node)

    def at_bound(self, bound: str, node: str, at: float) -> None:
        """A node's agent has hit a bound."""
        pilot = self._pilots.records.pilots.get(node)
        by = pilot.user if pilot is not None else ""
        self._telemetry.bounded(bound, by or node, node=node, at=at)

    def flooded(self, node: str, reason: str) -> None:
        """A node's agent has sent too much for too long: our agents do not, so its pilot ends."""
        self._telemetry.trouble("agent", reason, node=node)
        self._telemetry.happened("agents", "an agent that sent too much was cut off", f"on {node}: {reason}")
        self._losses.misbehaves(node, reason)

    def said(self, node: str, message: Message) -> None:
        """An agent has sent a message: its own goodbye, or something about a worker."""
        if message.get("type") == "bye":
            self._losses.agent_leaves(node)
        elif message.get("type") == "devices":
            self._link.has_devices(node, DevicesChanged.model_validate(message).devices)
            self._tell_devices(node)
        else:
            self._launcher.said(node, message)
