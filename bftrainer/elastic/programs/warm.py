"""`python -m bftrainer.elastic.programs.warm FD OF`: a process with torch loaded, from which workers are
forked.

An agent keeps one (docs/contributing/rescaling.md, "Warm pool"). A fork takes milliseconds, where
starting Python and importing torch and the script's other packages takes seconds. This process itself
starts no thread and runs no tensor operation and no line of a user's script: so its forks are like new
processes. `OF` shows in the process table to which agent it belongs.

Requests come as packets of JSON over the inherited socket: {"type": "import", "script": path} and
{"type": "fork", ...} with file descriptors: the worker's channel, its log and its memory for snapshots. The
answer to a fork is {"pid": ...}. The worker becomes a child of the agent, as if the agent had started it.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import time

from bftrainer.elastic.process.channel import AGENT_GONE
from bftrainer.elastic.programs.forked import Ending, Task, become
from bftrainer.elastic.programs.preload import import_for, importing

WITH = ("torch._dynamo", "bftrainer.elastic.loop.run", "bftrainer.elastic.checks.replicas")
"""Imported before any fork: what the first optimizer of a process would import (800 modules), what
`elastic.Run` imports where it is first used, and what watches ranks on torchrun."""
MOST_FDS = 8
_PR_SET_PDEATHSIG = 1


def serve(agent: socket.socket) -> Task | None:
    """Fork on request. Returns its task in every forked process; here, None once the agent is gone.

    Raises:
        SystemExit: with code `UNSAFE`, see `import_for`.
    """
    agent.send(b"{}")
    while True:
        data, fds, _, _ = socket.recv_fds(agent, 1 << 20, MOST_FDS)
        if not data:
            return None
        wanted = json.loads(data)
        if wanted["type"] == "import":
            import_for(wanted["script"])
            continue
        pid = _fork_for(os.getppid())
        if pid == 0:
            agent.close()
            del wanted["type"]
            return Task(**wanted, channel=fds[0], log=fds[1], slots=fds[2:])
        for fd in fds:
            os.close(fd)
        agent.send(json.dumps({"pid": pid}).encode())


def _fork_for(agent: int) -> int:
    """Fork a process of which `agent` becomes the parent (it adopts orphans).

    Returns the process's number; in that process, 0.
    """
    reader, writer = os.pipe()
    between = os.fork()
    if between:
        os.close(writer)
        with os.fdopen(reader, "rb") as answer:
            pid = int(answer.read())
        os.waitpid(between, 0)
        return pid
    os.close(reader)
    between = os.getpid()
    child = os.fork()
    if child:
        os.setpgid(child, child)
        os.write(writer, str(child).encode())
        os._exit(0)
    os.close(writer)
    while (parent := os.getppid()) == between:
        time.sleep(0.0005)
    if parent != agent:  # which is gone, and another process has adopted this one
        os._exit(AGENT_GONE)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != agent:
        os._exit(AGENT_GONE)
    return 0


def load() -> None:
    """Import what workers will need, whatever their script is."""
    with importing():
        for module in WITH:
            importlib.import_module(module)


def main() -> None:
    """Load torch, then serve one agent over the socket that the first argument names."""
    ending = Ending()
    load()
    task = serve(socket.socket(fileno=int(sys.argv[1])))
    if task is not None:
        with ending.of():
            become(task)


if __name__ == "__main__":
    main()
