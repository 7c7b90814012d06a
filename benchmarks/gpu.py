"""Costs of elastic training on GPUs with NCCL: changes of nodes, faults, throughput, and large states.

    python benchmarks/gpu.py                     # all parts, on all GPUs of this machine
    python benchmarks/gpu.py --only throughput --seconds 60
    python benchmarks/gpu.py --cpu               # its whole path on the CPU with gloo: shows that it works

It needs a machine with an NVIDIA GPU that this process may use (`CUDA_VISIBLE_DEVICES`), a PyTorch that was
built for CUDA, with NCCL, and for `stream` 20 GB on each GPU and three times as much memory. Nothing else
should run on these GPUs. The GPUs are shared out to as many as four nodes of a real daemon, with real agents
and workers, one process for each GPU. Of one GPU, two nodes with a process each compute on it: NCCL takes
them for two machines (`NCCL_HOSTID`), and they talk over sockets, so that speeds are not those of two GPUs.

faults      a join, a leave, SIGKILL, SIGSTOP within a collective, the loss of rank 0, and a node that is
            taken: by itself, with `ddp=True`, and with AMP and a GradScaler. Then the weights are set beside
            those of the same script undisturbed; the target in double precision is 1e-12 of their way. With
            AMP other shares of the batch are rounded otherwise, and there is no target
rejoins     the memory of a member that loses its peer ten times, and gets another; the target is 64 MB more
vacate      a model of 1 billion parameters with its momentum (8 GB): its only node is given back, as Slurm
            preempts a pilot, and then it is cancelled: when the GPU is free, and which steps are kept
throughput  steps/s of `elastic.Run` with `ddp=True` beside plain torchrun with DistributedDataParallel, as
            many processes each, taken in turn; the target is a difference of 2 % at most
snapshots   how long training stands still while a model of 1 billion parameters with its momentum (8 GB) is
            copied for a checkpoint, from the second time on; the target is 0.3 s at most
stream      a newcomer receives the state of a model of 1 billion parameters while the others train on
changes     joins, leaves, and SIGKILL of one worker: how long those that stay take no step (`pause`), and
            when the first step at the new size is done
forks       CUDA in a process forked from one that has imported a package: twenty of the most used, as far as
            they are installed

A part that fails says so in a line, and the next one goes on.

Exit code 1: a part failed, a change never came to a step, or a target was missed (targets do not count with
--cpu).
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/ is not installed

import elastic_baselines as baselines
import torch
from elastic import NODES
from gpu_faults import faults, forks, rejoins, vacate
from gpu_nodes import fault, row, system
from gpu_worker import model_of

HERE = Path(__file__).resolve().parent
SLOWER = 0.02
"""The target: share of plain DDP's speed that may be lost."""
STALL_S = 0.3
"""The target for a snapshot of 8 GB."""
PATIENCE_S = 300.0


def lacking(options: argparse.Namespace) -> str:
    """Return what this machine lacks for the benchmark; "" if nothing."""
    if options.cpu:
        return ""
    here = f"here: PyTorch {torch.__version__}, {torch.cuda.device_count()} GPUs"
    if not torch.cuda.is_available():
        return f"an NVIDIA GPU and a PyTorch for CUDA are needed; {here}"
    if not torch.distributed.is_nccl_available():
        return f"a PyTorch with NCCL is needed; {here}"
    return ""


def changes(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """Joins, leaves and kills; yields lines, and whether each came to a step."""
    with system(options, "gpu_worker.py", options.parameters, options.batch) as own:
        own.grow(1)
        for _ in range(options.repeat):
            for host in NODES[1 : options.nodes]:
                count = len(own.hosts)
                yield row(baselines.changed(own, "join", count, count + 1, lambda host=host: own.join(host)))
            count = options.nodes
            yield row(fault(own, "SIGKILL", signal.SIGKILL, own.hosts[-1], count))
            own.until_size(count)
            for _ in range(1, options.nodes):
                count = len(own.hosts)
                yield row(baselines.changed(own, "leave", count, count - 1, lambda: own.leave("")))
            for _ in range(1, options.nodes):
                count = len(own.hosts)
                yield row(baselines.changed(own, "join, warm", count, count + 1, own.come_back))
            for host in reversed(NODES[1 : options.nodes]):
                own.kill(host)
            own.until_size(1)


def throughput(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """Steps/s under bftrainer and under plain torchrun, in turn, and by how much they differ."""
    found: dict[str, list[float]] = {"bftrainer": [], "torchrun": []}
    for _ in range(options.repeat):
        with system(options, "gpu_worker.py", options.parameters, options.batch, "--ddp") as own:
            own.grow(options.nodes)
            found["bftrainer"].append(rate(own.where / f"{NODES[0]}.steps", options.seconds))
        with tempfile.TemporaryDirectory(prefix="gpu-") as where:
            plain = torchrun(Path(where), options)
            try:
                found["torchrun"].append(rate(Path(where) / "plain.steps", options.seconds))
            finally:
                plain.terminate()
                plain.wait()
    ours, theirs = (statistics.median(found[name]) for name in ("bftrainer", "torchrun"))
    for name, rates in found.items():
        each = ", ".join(f"{one:.2f}" for one in rates)
        yield f"{name}: {statistics.median(rates):.2f} steps/s in the median ({each})", True
    slower = 1 - ours / theirs
    yield f"bftrainer is {slower:+.1%} slower than plain torchrun DDP; target: {SLOWER:.0%}", slower <= SLOWER


def torchrun(where: Path, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Plain torchrun with as many processes as the trainer has."""
    count = options.nodes * options.each
    words = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={count}", "--standalone"]
    words += [str(HERE / "gpu_worker.py"), str(options.parameters), str(options.batch), "--plain"]
    environ = {**os.environ, "BENCHMARK_WHERE": str(where), "OMP_NUM_THREADS": "1"}
    with (where / "plain.log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, env=environ)


def rate(steps: Path, seconds: float) -> float:
    """Return the steps/s of the last `seconds`, after a warm-up of a fifth of them.

    Raises:
        RuntimeError: there is no step in time.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not steps.exists() or not steps.read_text().strip():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no step; see the logs in {steps.parent}")
        time.sleep(0.2)
    time.sleep(1.2 * seconds)
    times = [float(line.split()[0]) for line in steps.read_text().splitlines() if line.endswith(";")]
    last = [moment for moment in times if moment > times[-1] - seconds]
    return (len(last) - 1) / (last[-1] - last[0]) if len(last) > 1 else 0.0


def stream(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """A newcomer receives the state of a large model: weights and momentum, 8 bytes a parameter."""
    with system(options, "gpu_worker.py", options.large, options.batch) as own:
        own.grow(1)
        for _ in range(options.repeat):
            yield row(baselines.changed(own, "join", 1, 2, lambda: own.join(NODES[1])))
            own.kill(NODES[1])
            own.until_size(1)
        yield f"{8 * options.large / 1e9:.2f} GB of state", True
        yield from ((line, True) for line in own.newcomers()[1:])


def snapshots(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """Copies of a large state into the memory that an agent shares, without an agent and without a disk."""
    from bftrainer.elastic.process.channel import Channel
    from bftrainer.elastic.snapshots.saver import Saver
    from bftrainer.elastic.state.checkpoint import Checkpoints
    from bftrainer.elastic.state.training_state import TrainingState

    class Agent(Channel):
        def __init__(self) -> None:
            self.said: dict[str, Any] = {}

        def send(self, kind: str, **said: Any) -> None:
            self.said = {"error": "", "saved": True, **said}

    device = torch.device("cpu" if options.cpu else "cuda")
    model, _ = model_of(options.large, 1, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for parameter in model.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    agent, slots = Agent(), [os.memfd_create(name) for name in ("one", "two")]
    with tempfile.TemporaryDirectory(prefix="gpu-") as where:
        saver = Saver(
            TrainingState({"model": model, "optimizer": optimizer}), Checkpoints(where), agent, slots
        )
        began = time.monotonic()
        saver.prepare()
        times = []
        for _ in range(options.repeat + 1):
            start = time.monotonic()
            saver.save(1, wait=False)
            times.append(time.monotonic() - start)
            saver.written(agent.said)
        yield f"memory was ready, and the first copy made, after {times[0] + start - began:.2f} s", True
    size, longest = agent.said["bytes"] / 1e9, max(times[1:])
    for slot in slots:
        os.close(slot)
    told = f"{size:.2f} GB stand still for {longest:.3f} s, {size / longest:.1f} GB/s; target: {STALL_S} s"
    yield told, longest <= STALL_S


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[tuple[str, bool]]]] = {
    "faults": faults,
    "rejoins": rejoins,
    "vacate": vacate,
    "throughput": throughput,
    "snapshots": snapshots,
    "stream": stream,
    "changes": changes,
    "forks": forks,
}


def arguments() -> argparse.Namespace:
    """The options, with what follows from the machine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; may be repeated")
    parser.add_argument("--cpu", action="store_true", help="on the CPU with gloo, and small models")
    parser.add_argument("--nodes", type=int, choices=range(2, 5), help="[default: one a GPU, 4 at most]")
    parser.add_argument("--each", type=int, help="GPUs of each node [default: all that there are]")
    parser.add_argument("--parameters", type=lambda text: int(float(text)), help="[default: 100 million]")
    parser.add_argument("--large", type=lambda text: int(float(text)), help="of stream [default: 1 billion]")
    parser.add_argument("--batch", type=int, help="samples of each process [default: 512]")
    parser.add_argument("--seconds", type=float, help="of each measurement of throughput [default: 30]")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    if options.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # also of the daemon, its agents and workers
    there = 2 if options.cpu else torch.cuda.device_count()
    options.is_shared = there == 1
    if options.is_shared:
        os.environ |= {"BENCHMARK_SHARES_GPU": "1", "NCCL_SOCKET_IFNAME": "lo"}
    defaults = (
        {"parameters": 1_000_000, "large": 10_000_000, "batch": 8, "seconds": 5.0} if options.cpu else {}
    )
    defaults = {"parameters": 100_000_000, "large": 1_000_000_000, "batch": 512, "seconds": 30.0} | defaults
    for name, value in defaults.items():
        setattr(options, name, getattr(options, name) or value)
    options.nodes = options.nodes or max(2, min(4, there))
    options.each = options.each or max(1, there // options.nodes)
    return options


def main() -> None:
    """Run the parts, print their lines, and tell by the exit code whether all was well."""
    options = arguments()
    if why := lacking(options):
        sys.exit(f"benchmarks/gpu.py: {why}; --cpu shows on the CPU that everything works")
    where = "on the CPU, with gloo" if options.cpu else f"on {torch.cuda.get_device_name(0)}, with NCCL"
    where += " over sockets, as all share this one GPU" if options.is_shared else ""
    print(f"# {options.nodes} nodes with {options.each} workers each, {where}; PyTorch {torch.__version__}")
    well = True
    for name in options.only or PARTS:
        try:
            for line, good in PARTS[name](options):
                well &= good or (options.cpu and "target" in line)
                print(f"{name:12}{line}{'' if good else '  <-- missed'}", flush=True)
        except Exception as error:  # noqa: BLE001  the other parts can still tell something
            well = False
            print(f"{name:12}failed: {type(error).__name__}: {error}", flush=True)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
