"""Turns on a device that trainers share (`share: time`): what passing them costs, and what they gain.

    python benchmarks/turns.py                     # all parts, about five minutes
    python benchmarks/turns.py --only handover     # from one worker's last word to the next one's start
    python benchmarks/turns.py --only models       # five models in turn, against one after the other
    python benchmarks/turns.py --only pair         # two trainers on two nodes of a real daemon
    unshare -n python benchmarks/turns.py --only pair --mbit 200     # as root: over a network slowed by tc

`handover` kills a worker that has its turn, too. `models` trains five models of PyTorch for the same steps,
one process each, on one core; no gradients are exchanged, so that turns can gain nothing. `pair` measures
speeds in one run: of one trainer alone, of both in turn, and of both at once without turns. Each node has a
device that is made up, see benchmarks/turns_worker.py.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bftrainer.agent.turns.server import TurnServer
from bftrainer.elastic.loop.device_turns import TakesTurns
from bftrainer.engine.pairs import expected
from bftrainer.model.trainer import DeviceUse
from tests.support.site import Site, always, running

WORKER = str(Path(__file__).with_name("turns_worker.py"))
CPU = torch.device("cpu")
SPAWN = mp.get_context("spawn")


def serve(name: Any) -> None:
    """An agent's turns, and nothing else: puts the name of its socket into a queue."""

    async def until_killed() -> None:
        name.put(await TurnServer().open())
        await asyncio.Event().wait()

    asyncio.run(until_killed())


class Turns:
    """A process with an agent's turns, and others that take them."""

    def __enter__(self) -> Turns:
        queue = SPAWN.Queue()
        self._server = SPAWN.Process(target=serve, args=(queue,), daemon=True)
        self._server.start()
        self.name: str = queue.get()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.join()


# --- from one to the next ------------------------------------------------------------------------


def hand_over(name: str, number: int, rounds: int, notes: Any) -> None:
    """Take `rounds` turns of a millisecond; note when each began and ended."""
    turns, found = TakesTurns(name, f"{number} node", CPU), []
    for _ in range(rounds):
        turns.before_compute()
        began = time.monotonic()
        while time.monotonic() < began + 1e-3:
            pass
        found.append((began, time.monotonic()))
        turns.step_ends(is_whole=True)
    notes.put(found)


def hold(name: str, held: Any) -> None:
    """Take a turn and keep it."""
    TakesTurns(name, "9 node", CPU).before_compute()
    held.set()
    time.sleep(60.0)


def handovers(rounds: int) -> None:
    """Print how long it takes from one worker's end to the next one's start, and from a holder's death."""
    with Turns() as turns:
        notes = SPAWN.Queue()
        workers = [SPAWN.Process(target=hand_over, args=(turns.name, n, rounds, notes)) for n in (1, 2)]
        for worker in workers:
            worker.start()
        each = [(began, done, n) for n in range(2) for began, done in notes.get()]
        for worker in workers:
            worker.join()
        each.sort()
        took = [b[0] - a[1] for a, b in pairwise(each) if a[2] != b[2]]
        middle, p99 = 1e6 * median(took), 1e6 * sorted(took)[len(took) * 99 // 100]
        print(f"handover: median {middle:.0f} us, p99 {p99:.0f} us of {len(took)}")
        killed = []
        for _ in range(10):
            held = SPAWN.Event()
            holder = SPAWN.Process(target=hold, args=(turns.name, held))
            holder.start()
            held.wait()
            assert holder.pid is not None
            os.kill(holder.pid, signal.SIGKILL)
            began = time.monotonic()
            waits = TakesTurns(turns.name, "8 node", CPU)
            waits.before_compute()
            killed.append(time.monotonic() - began)
            waits.step_ends(is_whole=True)
            holder.join()
        usual, most = 1e3 * median(killed), 1e3 * max(killed)
        print(f"a killed holder's turn: free after {usual:.1f} ms, at most {most:.1f} ms")


# --- five models ---------------------------------------------------------------------------------


def models() -> dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]]:
    """Name -> how a model is made, and the shape of its batch."""
    nn = torch.nn

    def mlp() -> torch.nn.Module:
        return nn.Sequential(
            nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
        )

    def cnn() -> torch.nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 16, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 13 * 13, 10),
        )

    def normed() -> torch.nn.Module:
        layers = [
            part
            for _ in range(4)
            for part in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        ]
        return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def attention() -> torch.nn.Module:
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), 2)

    def recurrent() -> torch.nn.Module:
        class Last(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.lstm = nn.LSTM(64, 128, batch_first=True)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.lstm(x)[0][:, -1]  # type: ignore[no-any-return]

        return Last()

    return {
        "mlp": (mlp, (256, 784)),
        "cnn": (cnn, (32, 3, 32, 32)),
        "batch norm": (normed, (16, 3, 32, 32)),
        "attention": (attention, (16, 48, 128)),
        "lstm": (recurrent, (32, 40, 64)),
    }


@dataclass(frozen=True)
class Trained:
    """Times of some steps: processor time, and when each began and was done (s)."""

    cpu_s: float
    spans: tuple[tuple[float, float], ...]


def train(name: str, which: str, number: int, seconds: float, orders: Any, answers: Any) -> None:
    """Train one model when it is told to, with or without turns; answer what that took."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    make, shape = models()[which]
    model, x = make(), torch.randn(shape)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    turns = TakesTurns(name, f"{number} node", CPU)

    def steps(count: int, *, in_turn: bool) -> Trained:
        used, spans = time.process_time(), []
        for _ in range(count):
            if in_turn:
                turns.before_compute()
            began = time.monotonic()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            spans.append((began, time.monotonic()))
            if in_turn:
                turns.step_ends(is_whole=True)
        return Trained(time.process_time() - used, tuple(spans))

    steps(5, in_turn=False)
    count = max(5, round(seconds / (steps(10, in_turn=False).cpu_s / 10)))
    answers.put(count)
    while (order := orders.get()) is not None:
        answers.put(steps(count, in_turn=order))


def five_models(seconds: float, repeat: int) -> None:
    """Print what turns cost five models, beside training one after the other: in processor time, which other
    work on the machine changes little, in the time between turns, and in all."""
    with Turns() as turns:
        orders = {which: SPAWN.Queue() for which in models()}
        answers = SPAWN.Queue()
        for number, which in enumerate(orders, start=1):
            args = (turns.name, which, number, seconds, orders[which], answers)
            SPAWN.Process(target=train, args=args, daemon=True).start()
            print(f"{which}: {answers.get()} steps")
        used, gaps, walls = [], [], []
        for _ in range(repeat):
            apart = []
            for queue in orders.values():
                queue.put(False)
                apart.append(answers.get())
            for queue in orders.values():
                queue.put(True)
            together: list[Trained] = [answers.get() for _ in orders]
            alone_s = sum(one.cpu_s for one in apart)
            used.append(100 * (sum(one.cpu_s for one in together) / alone_s - 1.0))
            spans = sorted(span for one in together for span in one.spans)
            between = median(after[0] - before[1] for before, after in pairwise(spans))
            gaps.append(100 * between * len(spans) / alone_s)
            one_by_one = sum(one.spans[-1][1] - one.spans[0][0] for one in apart)
            walls.append(100 * ((max(done for _, done in spans) - spans[0][0]) / one_by_one - 1.0))
            print(
                f"processor {used[-1]:+.1f} %, {1e6 * between:.0f} us between turns {gaps[-1]:+.1f} %, "
                f"all in all {walls[-1]:+.1f} %",
                flush=True,
            )
        for queue in orders.values():
            queue.put(None)
    print(
        f"five models in turn: processor {median(used):+.2f} %, between turns {median(gaps):+.2f} %, "
        f"all in all {median(walls):+.1f} %"
    )


# --- two trainers on two nodes -------------------------------------------------------------------


def submit(site: Site, name: str, *words: str) -> None:
    """A trainer on both nodes, of which nothing is known but its memory."""
    about: Any = {"scalability": "auto", "curve": None, "share": "time", "memory_gb": 0.5}
    site.submit(name, *words, n_min=2, n_max=2, **about)


def speed(site: Site, names: tuple[str, ...], seconds: float) -> float:
    """Total steps per second of these trainers, over `seconds`."""
    before = [site.trainer(name)["step"] for name in names], time.monotonic()
    time.sleep(seconds)
    after = [site.trainer(name)["step"] for name in names]
    return (sum(after) - sum(before[0])) / (time.monotonic() - before[1])


def use_of(site: Site) -> DeviceUse:
    """Return how the trainer has used its devices alone, as it was measured last."""
    events = [e for e in site.get("events", limit=1000) if e["kind"] == "Measured" and e["data"]["use"]]
    return DeviceUse(**next(e["data"]["use"] for e in reversed(events) if not e["data"]["use"]["beside"]))


def pair(computes_s: float, megabytes: float, slower_s: float, seconds: float, repeat: int) -> None:
    """Print what two network-bound trainers do in turn, beside one after the other and both at once."""
    with running(always("a", "b")) as site:
        words = (WORKER, str(computes_s), str(megabytes), str(slower_s), str(site.root))
        submit(site, "one", *words)
        site.until_members("one", "a", "b")
        site.until(
            lambda: any(e["kind"] == "Measured" for e in site.get("events", limit=1000)), 60, "measured"
        )
        alone = speed(site, ("one",), seconds)
        use = use_of(site)
        submit(site, "two", *words)
        site.until_members("two", "a", "b")
        site.until(lambda: "of its speed alone" in site.trainer("two")["turns"], 60, "turns are measured")
        bound = sum(expected(use, use))
        part = (use.alone_s - use.held_s) / use.held_s
        print(f"exchange: {part:.2f} of computing ({use.held_s * 1e3:.0f} ms); bound {bound:.2f}", flush=True)
        in_turn, at_once = [], []
        for _ in range(repeat):
            in_turn.append(speed(site, ("one", "two"), seconds) / alone)
            (site.root / "free").touch()
            time.sleep(2 * use.step_s)
            at_once.append(speed(site, ("one", "two"), seconds) / alone)
            (site.root / "free").unlink()
            time.sleep(2 * use.step_s)
            print(f"sum of speeds: in turn {in_turn[-1]:.2f}, at once {at_once[-1]:.2f}", flush=True)
        gain, beside = median(in_turn), median(at_once)
        print(
            f"in turn: {gain:.2f}, {100 * gain / bound:.0f} % of the bound; at once: {beside:.2f}; "
            f"total time, one after the other = 1: {1 / gain:.2f} in turn, {1 / beside:.2f} at once"
        )


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", choices=("handover", "models", "pair"))
    parser.add_argument("--rounds", type=int, default=2000, help="handovers")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each model, and of each window")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--compute-ms", type=float, default=100.0)
    parser.add_argument("--exchange-ms", type=float, default=50.0, help="that an exchange takes longer")
    parser.add_argument(
        "--mbit", type=float, help="slow this network namespace down to so many Mbit/s, instead"
    )
    parser.add_argument("--megabytes", type=float, default=1.0, help="of gradients")
    own = parser.parse_args()
    slower_s = own.exchange_ms / 1e3
    if own.mbit:
        slower_s = 0.0
        for words in (
            "ip link set lo mtu 1500 up",  # a burst has to hold a packet
            f"tc qdisc replace dev lo root tbf rate {own.mbit}mbit burst 256kbit latency 2s",
        ):
            subprocess.run(words.split(), check=True)
    if own.only in (None, "handover"):
        handovers(own.rounds)
    if own.only in (None, "models"):
        five_models(own.seconds, own.repeat)
    if own.only in (None, "pair"):
        pair(own.compute_ms / 1e3, own.megabytes, slower_s, own.seconds, own.repeat)


if __name__ == "__main__":
    main()
