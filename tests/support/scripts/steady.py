"""A trainer without PyTorch, quick to start: it counts steps, and leaves as soon as it is told to."""

import json
import os
import socket
import sys
import time
from typing import Any

REPORT_S = 0.2
BEGIN = 1.7e9

orders = json.loads(os.environ["BFTRAINER_WORKER"])
channel = socket.socket(fileno=orders["fd"])
node = orders["node"]
generation, size, joined, reported_at = 0, 0, False, 0.0
rest = b""
odd = {name: 1.0 for name in os.environ.get("STEADY_METRIC", "").split("|") if name}


def say(kind: str, **fields: Any) -> None:
    channel.sendall(json.dumps({"type": kind, "generation": generation, **fields}).encode() + b"\n")


def standing() -> dict[str, Any]:
    step = int((time.time() - BEGIN) / REPORT_S)  # a real trainer brings its state along; here time does it
    return {"step": step, "samples": 16 * step, "epoch": 0, "metrics": {"loss": 1 / (1 + step)} | odd}


def obey(order: dict[str, Any]) -> None:
    global generation, size, joined  # noqa: PLW0603
    if order["type"] == "stop":
        sys.exit(0)
    if order["type"] != "regroup":
        return
    generation = order["generation"]
    if node not in order["members"]:
        say("left", **standing())
        sys.exit(0)
    survivor, size, joined = joined, len(order["members"]), True
    say("joined", step=standing()["step"], size=size, survivor=survivor, pause_s=0.01)


say("ready")
channel.settimeout(REPORT_S)
while True:
    try:
        data = channel.recv(1 << 16)
        if not data:
            sys.exit(70)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            obey(json.loads(line))
    except TimeoutError:
        pass
    if joined and time.time() - reported_at >= REPORT_S:
        reported_at = time.time()
        say("progress", size=size, rate=16 / REPORT_S, problem="", **standing())
