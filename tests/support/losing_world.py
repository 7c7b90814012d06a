"""The real engine and the real native launcher with agents that lose their connections, and a daemon that is
killed: who meets whom.

Two trainers exist in memory only. Orders and reports take their time, and those under way are lost when a
connection breaks; what an agent keeps over that is as in `agent.outbox`. What happens next is drawn by lot.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from bftrainer.daemon.recovery import missed, with_heard
from bftrainer.engine.restore import restore
from bftrainer.engine.state import State
from bftrainer.launch.native.launcher import NativeLauncher
from bftrainer.model.events import Event, NodesChanged, TrainerCancelled, TrainerSubmitted
from bftrainer.model.policy import EngineSettings
from bftrainer.model.reports import Message
from bftrainer.model.trainer import TrainerSpec
from tests.support.engine_world import carried_out, make_spec
from tests.support.messages import passed_on, report, worker
from tests.support.remembering_ports import FOLDERS, RememberingPorts
from tests.support.timers import Timers

NODES = "abcd"
FORM_S = 10.0
"""As `elastic.members.rendezvous.FORM_TIMEOUT_S`."""
CALM_S = 600.0
"""So long after the last fault, all that can meet has met: groups that break are published ever later."""
KINDS = ("break", "break", "break", "kill", "ask back", "end", "rival", "cancel", "restart")
AT = {"step": 10, "samples": 1000, "epoch": 0, "metrics": {}}


@dataclass(slots=True, eq=False)
class Member:
    """A worker's process. `told` is the last membership that it has heard of, at `told_at`, and `met` are
    the members of which it has the entries."""

    trainer: int
    started: int
    phase: str = "starting"
    told: Message | None = None
    told_at: float = 0.0
    met: set[str] = field(default_factory=set)
    joined: int = 0
    broke: int = 0  # the last generation that it said was broken


@dataclass(slots=True, eq=False)
class FakeAgent:
    """An agent on its pilot's node. `ends`: of workers, which the daemon has not said that it heard."""

    node: str
    connected: bool = False
    parting: bool = False  # its pilot was told to end
    orders: deque[Message] = field(default_factory=deque)
    reports: deque[Message] = field(default_factory=deque)
    ends: dict[tuple[int, int], Message] = field(default_factory=dict)
    queue: list[Message] = field(default_factory=list)
    workers: dict[int, Member] = field(default_factory=dict)


class LosingWorld(RememberingPorts):
    """See above. Trainer 1 is there from the beginning, and another one comes and goes."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self._draw, self._timers = draw, Timers()
        self.agents: dict[str, FakeAgent] = {}
        self.launcher = self._launcher()
        self.state = State(settings=EngineSettings(max_failures=1000))
        self._last = 0
        self.submit()

    def _launcher(self) -> NativeLauncher:
        return NativeLauncher(self, self.events.append, self, FOLDERS, grace_s=5.0, clock=self._timers.now)

    # ports

    def serves(self, node: str, spec: TrainerSpec) -> bool:
        return node in self.agents and self.agents[node].connected

    def send(self, node: str, message: Message) -> None:
        super().send(node, message)
        if node in self.agents and self.agents[node].connected:
            self.agents[node].orders.append(message)

    # the daemon

    def take(self, event: Event) -> None:
        """The engine takes an event, and the launcher does what follows."""
        self.state = carried_out(self.state, event, self.launcher).state

    def restart(self) -> None:
        """The daemon is killed, and another one finds what is stored. Some agents come back in time."""
        self.events.clear()
        self.launcher = self._launcher()
        for t in self.state.trainers.values():
            self.launcher.add(t.id, t.spec, published=t.published, members=t.members)
        for agent in self.agents.values():
            self.disconnect(agent)
            if self._draw.random() < 0.7:
                self.connect(agent)
        now, present = self._timers.now(), frozenset(n for n, a in self.agents.items() if not a.parting)
        stored, recorded = self.state.trainers.values(), self.state.pool
        state = restore(self.state.settings, recorded | present, stored, now)
        self.state = with_heard(state, self.launcher.known.views)
        if gone := recorded - present:
            self.take(NodesChanged(time=now, left=gone))
        for event in missed(self.state, self.launcher.known.views, present, now):
            self.take(event)

    def submit(self) -> None:
        """Another trainer comes."""
        self._last += 1
        spec = make_spec(n_max=3, samples=10_000, weight=1.0 + self._draw.random())
        self.launcher.add(self._last, spec)
        self.take(TrainerSubmitted(time=self._timers.now(), trainer=self._last, spec=spec))

    def cancel(self) -> None:
        """The trainer that came first ends."""
        self.take(TrainerCancelled(time=self._timers.now(), trainer=min(self.state.trainers)))

    # nodes

    def give(self, node: str) -> None:
        """A pilot begins on a node, and its agent will connect."""
        self.agents[node] = FakeAgent(node)
        self.take(NodesChanged(time=self._timers.now(), joined=frozenset({node})))

    def ask_back(self, node: str) -> None:
        """A node is to be given back: its workers may leave in order."""
        self.agents[node].parting = True
        gone = frozenset({node})
        self.take(NodesChanged(time=self._timers.now(), left=gone, vacated=gone))

    def end_pilot(self, node: str) -> None:
        """A pilot ends with all on its node; the daemon learns of it in one order or the other."""
        agent = self.agents.pop(node)
        gone = NodesChanged(time=self._timers.now(), left=frozenset({node}))
        is_seen_first = self._draw.random() < 0.5
        if is_seen_first and not agent.parting:
            self.take(gone)
        self.launcher.agent_down(node, waiting=node not in self.state.pool)
        if not is_seen_first and not agent.parting:
            self.take(gone)

    def connect(self, agent: FakeAgent) -> None:
        """An agent says what runs on its node, and then which of its workers have ended."""
        agent.connected = True
        there = [worker(w.started, w.phase, w.joined, w.trainer) for w in agent.workers.values()]
        there += [worker(o["generation"], "starting", 0, o["trainer"]) for o in agent.queue]
        there += [worker(e["started"], e["phase"], 0, e["trainer"]) for e in agent.ends.values()]
        agent.reports.extend(agent.ends.values())
        wanted = {t.id for t in self.state.trainers.values() if agent.node in t.nodes}
        self.launcher.agent_up(agent.node, there, wanted)

    @staticmethod
    def disconnect(agent: FakeAgent) -> None:
        """Its connection breaks: what is under way is lost, and nobody has noticed yet."""
        agent.connected = False
        agent.orders.clear()
        agent.reports.clear()

    # agents

    def obey(self, agent: FakeAgent, order: Message) -> None:
        """As `agent.agent` does."""
        member = agent.workers.get(order.get("trainer", 0))
        match order["type"]:
            case "heard":
                agent.ends.pop((order["trainer"], order["started"]), None)
            case "start" if member is None or member.started < order["generation"]:
                agent.queue = [o for o in agent.queue if o["trainer"] != order["trainer"]] + [order]
                for other in agent.workers.values():
                    other.phase = "leaving"
                self._start_next(agent)
            case "stop":
                for waiting in [o for o in agent.queue if o["trainer"] == order["trainer"]]:
                    agent.queue.remove(waiting)
                    self._exited(agent, Member(order["trainer"], waiting["generation"], "leaving"), 0)
                if member is not None:
                    member.phase = "leaving"
            case "kill" if member is not None:
                self._exited(agent, member, -9)
            case "regroup" if member is not None:
                self._regroup(agent, member, order)
            case "kv" if member and member.told and member.told["generation"] == order["generation"]:
                member.met.add(order["key"])

    def _regroup(self, agent: FakeAgent, member: Member, order: Message) -> None:
        if member.told is not None and order["generation"] <= member.told["generation"]:
            return
        member.told, member.told_at, member.met = order, self._timers.now(), {agent.node}
        if agent.node in order["leaving"]:
            member.phase = "leaving"
        elif agent.node in order["members"] and member.phase != "leaving":
            self._say(agent, member, "kv", generation=order["generation"], key=agent.node, value="")

    def _start_next(self, agent: FakeAgent) -> None:
        if agent.queue and not agent.workers:
            order = agent.queue.pop(0)
            agent.workers[order["trainer"]] = Member(order["trainer"], order["generation"])

    def _say(self, agent: FakeAgent, member: Member, kind: str, **fields: object) -> None:
        if agent.connected:
            about = {"trainer": member.trainer, "started": member.started}
            agent.reports.append(passed_on(kind, **about, **fields))

    def _exited(self, agent: FakeAgent, member: Member, code: int) -> None:
        if agent.workers.get(member.trainer) is member:
            del agent.workers[member.trainer]
        last = {"type": "left", "generation": member.joined, **AT} if member.joined and not code else {}
        end = passed_on(
            "exited",
            trainer=member.trainer,
            started=member.started,
            code=code,
            phase=member.phase,
            reason="",
            last=last,
        )
        agent.ends[member.trainer, member.started] = end
        if agent.connected:
            agent.reports.append(end)
        self._start_next(agent)

    def _hear(self, agent: FakeAgent) -> None:
        """The daemon hears the next report of an agent."""
        said = agent.reports.popleft()
        about = {"trainer": said["trainer"], "started": said["started"]}
        if said["type"] == "exited":
            rest = {key: value for key, value in said.items() if key not in ("type", "run", *about)}
            self.launcher.reported(agent.node, report("exited", **about, **rest))
            agent.orders.append({"type": "heard", **about})
        else:
            rest = {key: value for key, value in said["said"].items() if key != "type"}
            self.launcher.reported(agent.node, report(said["said"]["type"], **about, **rest))

    # workers

    def _act(self, agent: FakeAgent, member: Member) -> bool:
        """Let a worker do what it can do by itself; whether there was anything."""
        if member.phase == "starting":
            member.phase = "ready"
            self._say(agent, member, "ready")
        elif member.phase == "leaving":
            self._exited(agent, member, 0)
        else:
            return self._meet(agent, member)
        return True

    def _meet(self, agent: FakeAgent, member: Member) -> bool:
        told = member.told
        if told is None or agent.node not in told["members"] or member.joined == told["generation"]:
            return False
        generation, here = told["generation"], told["members"]
        found = {node: self._comes(node, member.trainer, generation) for node in here}
        if all(other is not None and other.met >= set(here) for other in found.values()):
            about = {"step": 1, "size": len(here), "pause_s": 0.1}
            for node, other in found.items():
                assert other is not None
                survivor, other.joined, other.phase = bool(other.joined), generation, "member"
                self._say(
                    self.agents[node], other, "joined", generation=generation, survivor=survivor, **about
                )
            return True
        if member.broke < generation and self._timers.now() - member.told_at >= FORM_S:
            member.broke = generation
            self._say(agent, member, "broken", generation=generation, reason="a member did not come")
            return True
        return False

    def _comes(self, node: str, trainer: int, generation: int) -> Member | None:
        found = self.agents[node].workers.get(trainer) if node in self.agents else None
        if found is None or found.told is None or found.phase not in ("ready", "member"):
            return None
        return found if found.told["generation"] == generation and found.broke < generation else None

    # by lot

    def fault(self) -> None:
        """Something happens that nobody here wants."""
        node = self._draw.choice(NODES)
        agent = self.agents.get(node)
        if agent is None:
            self.give(node)
            return
        kind = self._draw.choice(KINDS)
        if kind == "break":
            self.disconnect(agent)
        elif kind == "restart":
            self.restart()
        elif kind == "kill" and agent.workers:
            self._exited(agent, self._draw.choice(list(agent.workers.values())), -9)
        elif kind == "ask back" and not agent.parting:
            self.ask_back(node)
        elif kind == "end":
            self.end_pilot(node)
        elif kind == "rival" and len(self.state.trainers) < 2:
            self.submit()
        elif kind == "cancel" and len(self.state.trainers) > 1:
            self.cancel()

    def go_on(self) -> bool:
        """Let one of the things happen that are under way; whether there was any."""
        now = self._timers.now()
        for event in sorted(self.events, key=lambda event: (event.time, event.priority)):
            if event.time <= now:
                self.events.remove(event)
                self.take(event)
                return True
        agents = list(self.agents.values())
        for agent in self._draw.sample(agents, len(agents)):
            kinds = ["connect", "obey", "hear", "act", "end"]
            for kind in self._draw.sample(kinds, len(kinds)):
                if self._does(agent, kind):
                    return True
        return False

    def _does(self, agent: FakeAgent, kind: str) -> bool:
        if kind == "connect" and not agent.connected:
            self.connect(agent)
        elif kind == "obey" and agent.orders:
            self.obey(agent, agent.orders.popleft())
        elif kind == "hear" and agent.reports:
            self._hear(agent)
        elif kind == "act":
            return any(self._act(agent, member) for member in list(agent.workers.values()))
        elif kind == "end" and agent.parting and not self.launcher.known.busy(agent.node):
            self.end_pilot(agent.node)
        else:
            return False
        return True

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self._timers.advance(seconds)

    def calm(self) -> None:
        """No more faults: all that is under way comes to its end."""
        for node in NODES:
            if node not in self.agents:
                self.give(node)
        for _ in range(int(CALM_S)):
            for _ in range(5_000):
                if not self.go_on():
                    break
            else:
                raise AssertionError("it never comes to rest")
            self.pass_time(1.0)

    def waiting(self) -> list[str]:
        """What trainers with nodes still wait for; empty if all train on all their nodes."""
        found = []
        for t in self.state.active.values():
            if set(t.members) != t.nodes:
                found.append(f"{t.id}: has {sorted(t.nodes)}, and of these only {t.members} are members")
            for node in t.members:
                member = self.agents[node].workers.get(t.id) if node in self.agents else None
                if member is None or member.joined != t.published:
                    found.append(f"{t.id}: {node} is not in generation {t.published}: {member}")
        return found
