"""Elastic Horovod, torchrun and torchft by themselves, as workers join, leave and are killed.

    python benchmarks/elastic_baselines.py                      # 1 to 4 workers, 10 million parameters
    python benchmarks/elastic_baselines.py --json --only horovod
    pip install --no-deps torchft==0.2.0; python benchmarks/elastic_baselines.py --only torchft

All as their users run them, on this machine, without bftrainer: Horovod's own driver with a discovery
and a creation of workers of our own in place of a script and ssh; one torchrun per worker, with the
settings that work (docs/horovod.md); torchft with the lighthouse of its wheel, Gloo, and its sampler and
optimizer. `pause` is the longest gap between two steps of a worker that stays, `first step` the time
from the change to the first step at the new size.

Where a system says which samples its steps had (torchft, and native in elastic.py), a last line counts those
that steps used twice, and those that none used although a later one was.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

SETTLE_S = 1.5
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Step:
    """A step that a worker took; `time` in seconds since the epoch, at its end; its `samples`, if it says."""

    host: str
    time: float
    size: int
    samples: tuple[int, ...] = ()


@dataclass(frozen=True)
class Change:
    """The cost of one change. None: it never came to a step at the new size."""

    system: str
    kind: str
    before: int
    after: int
    pause_s: float | None
    first_step_s: float | None


class System(ABC):
    """Workers of one kind on this machine; `where` is a folder into which they write their steps."""

    name: str

    def __init__(self, where: Path, parameters: int) -> None:
        self.where, self.parameters = where, parameters
        self.hosts: list[str] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @abstractmethod
    def join(self, host: str) -> None:
        """Have a worker on this host take part."""

    @abstractmethod
    def leave(self, host: str) -> None:
        """Have the worker on this host leave with notice."""

    def kill(self, host: str) -> None:
        """Everything on a host dies at once."""
        self.hosts.remove(host)
        for pid in _family(self.processes[host].pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill all workers with their children."""
        for process in self.processes.values():
            for pid in _family(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()

    def spawn(self, host: str, *command: str, **environ: str) -> subprocess.Popen[bytes]:
        """Start a worker for a host; its output goes to the host's log."""
        own = (str(Path(__file__).resolve()), "--worker", self.name, "--parameters", str(self.parameters))
        environ |= {"BENCHMARK_HOST": host, "BENCHMARK_WHERE": str(self.where), "OMP_NUM_THREADS": "1"}
        with (self.where / f"{host}.log").open("ab") as log:
            self.processes[host] = subprocess.Popen(
                [*command, *own], stdout=log, stderr=log, env={**os.environ, **environ}
            )
        return self.processes[host]


class Horovod(System):
    """Elastic Horovod: its driver, and what it asks for in place of a discovery script and of ssh."""

    name = "horovod"

    def __init__(self, where: Path, parameters: int) -> None:
        from horovod.runner.elastic import driver as elastic
        from horovod.runner.elastic.discovery import FixedHosts
        from horovod.runner.elastic.rendezvous import create_rendezvous_handler
        from horovod.runner.http.http_server import RendezvousServer

        super().__init__(where, parameters)
        elastic._epoch_time_s = time.time  # two changes within a second are two changes
        self._discovery = FixedHosts({})
        server = RendezvousServer()
        self._driver = elastic.ElasticDriver(server, self._discovery, min_num_proc=1, max_num_proc=64)
        self._port = server.start(create_rendezvous_handler(self._driver))
        self._started = False

    def join(self, host: str) -> None:
        """Add a host to those that Horovod discovers; the first one starts the driver."""
        self.hosts.append(host)
        self._discover()
        if not self._started:
            self._started = True
            threading.Thread(target=self._driver.start, args=(1, self._create), daemon=True).start()

    def leave(self, host: str) -> None:
        """Remove a host from those that Horovod discovers."""
        self.hosts.remove(host)
        self._discover()

    def _discover(self) -> None:
        self._discovery.set(dict.fromkeys(self.hosts, 1))

    def _create(self, slot: object, _events: object) -> tuple[int, float]:
        from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars

        shared = create_run_env_vars("127.0.0.1", ["lo"], self._port, elastic=True)
        environ = {name: str(value) for name, value in {**shared, **create_slot_env_vars(slot)}.items()}
        return self.spawn(slot.hostname, sys.executable, **environ).wait(), time.time()  # type: ignore[attr-defined]


class Torchrun(System):
    """TorchElastic: a torchrun per host, which meet at a store that outlives them all."""

    name = "torchrun"
    KEEP_ALIVE = "last_call_timeout=1,keep_alive_interval=2,keep_alive_max_attempt=3"

    def __init__(self, where: Path, parameters: int) -> None:
        from torch.distributed import TCPStore

        super().__init__(where, parameters)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._store = TCPStore(
            "127.0.0.1", self._port, is_master=True, multi_tenant=True, wait_for_workers=False
        )

    def join(self, host: str) -> None:
        """Start torchrun for a host."""
        self.hosts.append(host)
        settings = {
            "nnodes": "1:64",
            "nproc-per-node": "1",
            "max-restarts": "1000",
            "rdzv-backend": "c10d",
            "rdzv-id": "benchmark",
            "rdzv-endpoint": f"127.0.0.1:{self._port}",
            "rdzv-conf": f"is_host=0,{self.KEEP_ALIVE}",
            "local-addr": "127.0.0.1",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        command = (sys.executable, "-m", "torch.distributed.run", *options)
        self.spawn(host, *command, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1", GLOO_SOCKET_IFNAME="lo")

    def leave(self, host: str) -> None:
        """End a host's torchrun with SIGTERM."""
        self.hosts.remove(host)
        self.processes[host].terminate()


class Torchft(System):
    """torchft: a process per replica group, and the lighthouse by which they find each other."""

    name = "torchft"
    GROUPS = 4
    """Shards of the samples, which its sampler requires."""

    def __init__(self, where: Path, parameters: int) -> None:
        super().__init__(where, parameters)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._shards: dict[str, int] = {}
        words = ["--bind", self._address, "--min_replicas", "1", "--join_timeout_ms", "1000"]
        words += ["--heartbeat_timeout_ms", "1000"]  # by default it notices a death after 5 s
        lighthouse = Path(sys.executable).parent / "torchft_lighthouse"
        with (where / "lighthouse.log").open("ab") as log:
            self._lighthouse = subprocess.Popen([lighthouse, *words], stdout=log, stderr=log)

    def join(self, host: str) -> None:
        """Start a replica group of one process."""
        self.hosts.append(host)
        shard = min({*range(self.GROUPS)} - {self._shards[other] for other in self.hosts[:-1]})
        self._shards[host] = shard
        where = {"TORCHFT_LIGHTHOUSE": f"http://{self._address}", "BENCHMARK_SHARD": str(shard)}
        self.spawn(host, sys.executable, **where, GLOO_SOCKET_IFNAME="lo")

    def leave(self, host: str) -> None:
        """End a replica group with SIGTERM: it has no other notice."""
        self.hosts.remove(host)
        self.processes[host].terminate()

    def close(self) -> None:
        """As `System.close`; the lighthouse, too."""
        super().close()
        self._lighthouse.kill()
        self._lighthouse.wait()


def measure(system: System, workers: int) -> Iterator[Change]:
    """From 1 up to `workers` and down by leaving, then up again and down by killing the newest."""
    for down in (system.leave, system.kill):
        for _ in range(1, workers):
            count = len(system.hosts)
            host = f"h{len(system.processes)}"
            yield changed(system, "join", count, count + 1, lambda host=host: system.join(host))
        for _ in range(1, workers):
            count, host = len(system.hosts), system.hosts[-1]
            kind = "leave" if down == system.leave else "SIGKILL"
            yield changed(system, kind, count, count - 1, lambda host=host, down=down: down(host))


def changed(
    system: System, kind: str, before: int, after: int, change: object, staying: Iterable[str] | None = None
) -> Change:
    """Make a change and measure from outside the pause of those that stay, and the first step after it.
    `staying`: if not all hosts that the system has before and after."""
    members = set(system.hosts if staying is None else staying)
    time.sleep(SETTLE_S)
    begun = time.time()
    change()  # type: ignore[operator]
    first = until(system, begun, after)
    if first is None:
        return Change(system.name, kind, before, after, None, None)
    time.sleep(SETTLE_S)
    stay = members & set(system.hosts)
    pause = max(_gap(system.where, host, begun, first) for host in stay)
    return Change(system.name, kind, before, after, pause, first - begun)


def until(system: System, since: float, size: int) -> float | None:
    """Return when the first step at a size was taken, if there was one."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        times = [s.time for host in system.hosts for s in _steps(system.where, host) if s.size == size]
        later = [moment for moment in times if moment > since]
        if later:
            return min(later)
        time.sleep(0.05)
    return None


def _gap(where: Path, host: str, begun: float, first: float) -> float:
    """The longest time between two steps of a host around a change."""
    times = sorted(step.time for step in _steps(where, host))
    pairs = itertools.pairwise(times)
    return max((b - a for a, b in pairs if b > begun and a < first), default=float("nan"))


def _steps(where: Path, host: str) -> list[Step]:
    path = where / f"{host}.steps"
    lines = path.read_text().splitlines() if path.exists() else []
    whole = [line.split() for line in lines if line.endswith(";")]
    return [
        Step(host, float(moment), int(size), tuple(map(int, samples))) for moment, size, *samples, _ in whole
    ]


def used(where: Path) -> str:
    """Return how often steps reused a sample, and how many samples before the last one used were skipped."""
    hosts = [path.stem for path in where.glob("*.steps")]
    samples = [sample for host in hosts for step in _steps(where, host) for sample in step.samples]
    if not samples:
        return ""
    distinct = len(set(samples))
    return (
        f"{len(samples)} samples: {len(samples) - distinct} twice, {max(samples) + 1 - distinct} never, "
        f"of those up to the last"
    )


def tell(name: str, where: Path) -> None:
    """Print how its samples were used, and what a step took."""
    for line in filter(None, (used(where), paces(where))):
        print(f"# {name}: {line}")


def paces(where: Path) -> str:
    """The median time between two steps of a worker, by the number of workers; "" without any steps."""
    gaps: dict[int, list[float]] = {}
    for path in where.glob("*.steps"):
        for before, after in itertools.pairwise(_steps(where, path.stem)):
            if before.size == after.size:
                gaps.setdefault(after.size, []).append(after.time - before.time)
    told = [f"{statistics.median(own):.4f} s of {n} ({len(own)})" for n, own in sorted(gaps.items())]
    return f"a step: {', '.join(told)}" if told else ""


def _family(pid: int) -> list[int]:
    """A process and all that came from it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(found for child in children for found in _family(int(child)))]


# the workers


def model_of(parameters: int) -> tuple[Any, Any, Any]:
    """Return a network of about `parameters`, a batch for it, and the function that notes a step."""
    import torch

    torch.manual_seed(0)
    width = max(1, int((parameters / 4) ** 0.5))
    layers = [
        layer for _ in range(4) for layer in (torch.nn.Linear(width, width, bias=False), torch.nn.ReLU())
    ]
    steps = Path(os.environ["BENCHMARK_WHERE"], os.environ["BENCHMARK_HOST"] + ".steps")

    def note(size: int, samples: Iterable[int] = ()) -> None:
        """Append a step with its time, the number of workers, and its samples."""
        with steps.open("a") as out:
            out.write(" ".join([f"{time.time():.4f} {size}", *map(str, samples), ";\n"]))

    return torch.nn.Sequential(*layers), torch.randn(4, width), note


def _work_for_horovod(parameters: int) -> None:
    import horovod.torch as hvd
    import torch

    hvd.init()
    model, batch, note = model_of(parameters)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)

    @hvd.elastic.run
    def train(state: Any) -> None:
        """Train until killed; every step is committed."""
        while True:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            note(hvd.size())
            state.step += 1
            state.commit()

    train(state)


def _work_for_torchrun(parameters: int) -> None:
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    model, batch, note = model_of(parameters)
    snapshot = Path(os.environ["BENCHMARK_WHERE"], "snapshot.pt")
    if snapshot.exists():
        model.load_state_dict(torch.load(snapshot))
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-3, momentum=0.9)
    for step in range(1 << 30):
        optimizer.zero_grad()
        parallel(batch).square().mean().backward()
        optimizer.step()
        note(distributed.get_world_size())
        if step % 100 == 50 and distributed.get_rank() == 0:
            torch.save(model.state_dict(), snapshot.with_suffix(".new"))
            snapshot.with_suffix(".new").replace(snapshot)


def _work_for_torchft(parameters: int) -> None:
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from torchft import DistributedSampler, Manager, Optimizer, ProcessGroupGloo

    model, batch, note = model_of(parameters)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=1,
        timeout=timedelta(seconds=10),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        replica_id=f"{os.environ['BENCHMARK_HOST']}_",
    )
    optimizer_of_all = Optimizer(manager, optimizer)
    data = TensorDataset(torch.arange(1 << 20))
    shard = int(os.environ["BENCHMARK_SHARD"])
    sampler = DistributedSampler(data, shard, Torchft.GROUPS, group_rank=0, num_replicas=1, shuffle=False)
    for (samples,) in DataLoader(data, batch_size=len(batch), sampler=sampler):
        before = manager.current_step()
        optimizer_of_all.zero_grad()
        model(batch).square().mean().backward()
        flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
        manager.allreduce(flat).wait()  # its DDP fails with an AssertionError where a peer is lost
        for p, mean in zip(
            model.parameters(), flat.split([p.numel() for p in model.parameters()]), strict=True
        ):
            p.grad.copy_(mean.view_as(p))
        optimizer_of_all.step()
        if manager.current_step() > before:
            note(manager.num_participants(), samples.tolist())


WORK = {"horovod": _work_for_horovod, "torchrun": _work_for_torchrun, "torchft": _work_for_torchft}
SYSTEMS = {"horovod": Horovod, "torchrun": Torchrun}
SYSTEMS |= {"torchft": Torchft} if importlib.util.find_spec("torchft") else {}


def main() -> None:
    """Measure one system or all, or be a worker of one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parameters", type=lambda text: int(float(text)), default=10_000_000)
    parser.add_argument("--workers", type=int, default=4, help="the largest number of workers")
    parser.add_argument("--only", choices=SYSTEMS, help="measure one of them alone")
    parser.add_argument("--json", action="store_true", help="a line of JSON per change instead of a table")
    parser.add_argument("--worker", choices=WORK, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        WORK[options.worker](options.parameters)
        return
    if not options.json:
        print(f"{'system':10}{'change':9}{'workers':>9}{'pause s':>10}{'first step s':>14}")
    for name in [options.only] if options.only else SYSTEMS:
        with tempfile.TemporaryDirectory(prefix="baseline-") as where:
            system = SYSTEMS[name](Path(where), options.parameters)
            try:
                system.join("h0")
                until(system, time.time(), 1)
                for change in measure(system, options.workers):
                    print(json.dumps(asdict(change)) if options.json else _row(change), flush=True)
                if not options.json:
                    tell(name, Path(where))
            finally:
                system.close()
    os._exit(0)  # Horovod's driver has threads that nothing ends


def _row(change: Change) -> str:
    pause, first = (
        "never" if value is None else f"{value:.2f}" for value in (change.pause_s, change.first_step_s)
    )
    sizes = f"{change.before} -> {change.after}"
    return f"{change.system:10}{change.kind:9}{sizes:>9}{pause:>10}{first:>14}"


if __name__ == "__main__":
    main()
