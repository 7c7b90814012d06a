"""Scripts that misbehave: `hostile.py FOLDER KIND`. FOLDER/KIND appears when one has done its worst."""

import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

LIMIT_S = 1.0
"""For so long a flood lasts before it counts as done; it goes on."""


def say(*messages: dict[str, Any] | str) -> None:
    """Send messages to the agent, or lines that are none."""
    lines = (message if isinstance(message, str) else json.dumps(message) for message in messages)
    channel.sendall("".join(f"{line}\n" for line in lines).encode())


def progress(step: int = 1, **more: Any) -> dict[str, Any]:
    """A report of a member, but for what is to be wrong with it."""
    said = {"type": "progress", "generation": 1, "step": step, "samples": step, "epoch": 0, "metrics": {}}
    return {**said, "size": 1, "rate": 1.0, "problem": "", **more}


def surrogates() -> None:
    """Halves of surrogate pairs wherever a text may be."""
    bad = "\ud800"
    say(progress(problem=bad), progress(metrics={bad: 1.0}), progress(**{bad: 1}))
    say({"type": "broken", "generation": 1, "reason": bad}, {"type": bad})
    say({"type": "kv", "generation": 1, "key": bad, "value": bad})
    say({"type": "exited", "code": 1, "reason": bad, "last": {}, "phase": "member"})


def forged() -> None:
    """What only agents say, again and again, with the numbers of other trainers."""
    for trainer in (orders["trainer"], 1, 2):
        about = {"trainer": trainer, "started": 1, "run": 0}
        say({"type": "bye"}, {"type": "hello", "node": "n1", "tag": "x", "workers": [], "nonce": "0"})
        say({"type": "exited", **about, "code": 0, "reason": "", "last": {}, "phase": "leaving"})
        said = {"type": "finished", "generation": 10**9, "step": 1, "samples": 10**9, "epoch": 0}
        say({"type": "worker", **about, "said": {**said, "metrics": {}}}, {**said, **about, "metrics": {}})
        say(
            {"type": "left", "generation": 10**9, "step": 0, "samples": 0, "epoch": 0, "metrics": {}, **about}
        )


def reports() -> None:
    """Reports as fast as the agent takes them."""
    flood(lambda n: progress(n, metrics={"loss": 1.0}))


def joining() -> None:
    """To have joined, as fast as the agent takes it."""
    flood(
        lambda n: {"type": "joined", "generation": 1, "step": n, "size": 1, "survivor": True, "pause_s": 0.1}
    )


def names() -> None:
    """New names of metrics in every report."""
    flood(lambda n: progress(n, metrics={f"accuracy at step {n} of experiment {i}": 0.5 for i in range(100)}))


def giant() -> None:
    """Reports of many MB, and a line that never ends."""
    threading.Timer(LIMIT_S, done.touch).start()
    say(progress(metrics={f"m{n}": 1.0 for n in range(200_000)}))
    say(progress(problem="x" * 15_000_000), "[" * 100_000, '{"type": ' * 100_000)
    for _ in range(40):
        channel.sendall(b"x" * 1_000_000)


def never() -> None:
    """Never come to the loop."""


def children() -> None:
    """Children that mind no signal, in sessions of their own."""
    for _ in range(20):
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            channel.close()
            if os.fork() == 0:
                os.setsid()
            time.sleep(1e6)


def printing() -> None:
    """Print without end."""
    line = ("\x1b[31m" + "x" * 100 + "\ud800" * 10 + "\n").encode("utf-8", "surrogatepass") * 10_000
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        os.write(1, line)


def flood(message: Any) -> None:
    """Say so again and again; done after `LIMIT_S`, and goes on."""
    threading.Timer(LIMIT_S, done.touch).start()  # the agent may well let us wait
    for n in itertools.count():
        say(*(message(100 * n + i) for i in range(100)))


orders = json.loads(os.environ["BFTRAINER_WORKER"])
channel = socket.socket(fileno=orders["fd"])
done = Path(sys.argv[1], sys.argv[2])
if sys.argv[2] != "never":
    say({"type": "ready", "generation": 0})
globals()[sys.argv[2]]()
done.touch()
time.sleep(1e6)
