"""The parts of gpu.py in which workers and nodes are lost: what is left of weights, memory and steps."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import elastic_baselines as baselines
import torch
from elastic import NODES
from gpu_nodes import PATIENCE_S, OnGpus, fault, row, system

from tests.support.processes import alive

HERE = Path(__file__).resolve().parent
KINDS: dict[str, list[str]] = {"plain": [], "ddp": ["--ddp"], "amp": ["--amp"]}
APART = 1e-12
"""The target: how far weights in double precision may be apart, of what they have moved."""
REJOINS, MORE_MB = 10, 64
OFF_S = 1.0
"""The target for a GPU that is given back."""
PACKAGES = (
    "import torch",
    "import torchvision",
    "import torchaudio",
    "from transformers import Trainer, TrainingArguments, AutoModelForCausalLM",
    "from accelerate import Accelerator",
    "from lightning.pytorch import Trainer, LightningModule",
    "from peft import LoraConfig, get_peft_model",
    "import timm",
    "import torchmetrics",
    "import torch_geometric.nn",
    "from sentence_transformers import SentenceTransformer",
    "import tokenizers",
    "import datasets",
    "import triton",
    "import torch._inductor.compile_fx",
    "from torch.utils.tensorboard import SummaryWriter",
    "from sklearn.datasets import load_digits",
    "import pandas",
    "import cv2",
    "import onnxruntime",
    "from numba import cuda",
)


def faults(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """Every kind of change, for each kind of script, and then its weights beside undisturbed ones."""
    width = _width(options)
    for kind, words in KINDS.items():
        with system(options, "gpu_exact.py", width, *words) as own:
            own.grow(options.nodes - 1)
            last = NODES[options.nodes - 1]
            for line, good in _churn(own, last, options.nodes):
                yield f"{kind:6}{line}", good
            (own.where / "stop").touch()
            own.until_ended()
            yield _compared(own.where, kind, [str(width), *words])


def _width(options: argparse.Namespace) -> int:
    """Return the layers' width in gpu_exact.py, whose model is small: it takes as many steps by hand."""
    return max(8, int((options.parameters / 100) ** 0.5))


def _churn(own: OnGpus, last: str, count: int) -> Iterator[tuple[str, bool]]:
    yield row(baselines.changed(own, "join", count - 1, count, lambda: own.join(last)))
    yield row(fault(own, "SIGKILL", signal.SIGKILL, last, count))
    own.until_size(count)
    yield row(fault(own, "SIGSTOP", signal.SIGSTOP, last, count))
    own.until_size(count)
    yield row(fault(own, "rank 0", signal.SIGKILL, own.first(), count))
    own.until_size(count)
    yield row(baselines.changed(own, "leave", count, count - 1, lambda: own.leave("")))
    yield row(baselines.changed(own, "join, warm", count - 1, count, own.come_back))
    yield row(baselines.changed(own, "taken", count, count - 1, lambda: own.kill(own.hosts[-1])))


def _compared(where: Path, kind: str, words: list[str]) -> tuple[str, bool]:
    """Return how far the weights are from those of as many undisturbed steps."""
    found = torch.load(where / "weights")
    command = [sys.executable, str(HERE / "gpu_exact.py"), *words]
    command += ["--steps", str(found["step"]), "--out", "undisturbed"]
    subprocess.run(
        command,
        env={**os.environ, "BENCHMARK_WHERE": str(where), "OMP_NUM_THREADS": "1"},
        check=True,
        cwd=HERE,
    )
    expected = torch.load(where / "undisturbed")
    apart = (found["weights"] - expected["weights"]).norm().item() / expected["moved"]
    told = f"{kind:6}after {found['step']} steps weights are {apart:.1e} of their way from undisturbed ones"
    return (told, True) if kind == "amp" else (f"{told}; target: {APART:.0e}", apart <= APART)


def rejoins(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """Memory of the first node's process, over ten deaths of its peer."""
    with system(options, "gpu_exact.py", _width(options)) as own:
        own.grow(2)
        found = []
        for _ in range(REJOINS):
            fault(own, "SIGKILL", signal.SIGKILL, NODES[1], 2)
            own.until_size(2)
            found.append(own.last_step(NODES[0])[1:])
    gpu, main = (late - early for early, late in zip(found[1], found[-1], strict=True))
    told = f"from the 2nd to the {REJOINS}th rejoin: {gpu} MB more on the GPU, {main} MB more in all"
    yield f"{told}; target: {MORE_MB} MB", max(gpu, main) <= MORE_MB


def vacate(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """A large state on one node, which is given back with notice, and then cancelled."""
    with system(options, "gpu_worker.py", options.large, options.batch) as own:
        own.grow(1)
        own.until(lambda: own.saved() is not None, "a checkpoint")
        time.sleep(options.seconds)
        agent = own.site.agent_on(NODES[0])
        yield _left(own, "preempted", lambda: os.kill(agent, signal.SIGTERM), lambda: not alive(agent))
        own.site.change(take=[NODES[0]])
        own.site.change(give=[NODES[0]])
        own.until_size(1)
        time.sleep(options.seconds)

        def is_written() -> bool:
            return (own.saved() or 0) >= own.last_step(NODES[0])[0]

        yield _left(own, "cancelled", lambda: own.site.client.call("DELETE", "trainers/ours"), is_written)
        own.until_ended()


def _left(
    own: OnGpus, how: str, leave: Callable[[], object], is_over: Callable[[], object]
) -> tuple[str, bool]:
    """Return when the workers of the first node are gone, and what is saved once all is over."""
    workers, began = own.site.workers_on(NODES[0]), time.monotonic()
    leave()
    own.until(lambda: not any(map(alive, workers)), "an end of the workers")
    off, last = time.monotonic() - began, own.last_step(NODES[0])[0]
    own.until(is_over, "an end of what writes the checkpoint")
    told = f"{how}: off the GPU after {off:.2f} s; step {own.saved()} of {last} saved after"
    return f"{told} {time.monotonic() - began:.2f} s; target: {OFF_S:.0f} s", off <= OFF_S


def forks(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """Each package in a process of its own, a few at a time."""
    device = "cpu" if options.cpu else "cuda"

    def tried(statement: str) -> tuple[str, bool]:
        command = [sys.executable, str(HERE / "gpu_forked.py"), device, statement]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        said = (done.stdout.splitlines() or done.stderr.splitlines() or ["it said nothing"])[-1]
        return f"{statement}: {said}", done.returncode == 0

    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        yield from pool.map(tried, PACKAGES)
