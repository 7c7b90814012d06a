"""The recorder: writes what a worker's process does, a line of JSON for each event, and obeys directions."""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from bftrainer.elastic.recorded import interventions
from bftrainer.elastic.recorded.directions import RECORD, VARIABLE, Directions
from bftrainer.elastic.recorded.fingerprints import (
    final_state,
    fingerprint,
    first_batch,
    parameters_of,
    rows,
)
from bftrainer.elastic.recorded.variables import Variables

WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule")
Method = TypeVar("Method", bound=Callable[..., Any])


def harmless(method: Method) -> Method:
    """Have the script go on whatever happens in a method of the recorder: it stops recording then."""

    @wraps(method)
    def called(self: StepRecorder, *args: Any, **more: Any) -> Any:
        if self.is_off or torch.compiler.is_compiling():
            return None
        try:
            return method(self, *args, **more)
        except Exception:  # noqa: BLE001  of whatever a script has
            self.give_up(traceback.format_exc())
            return None

    return called  # type: ignore[return-value]


class StepRecorder:
    """Records the process in which it is first asked; a process forked from it starts a new record."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start a new record, in a new process."""
        self.is_off = VARIABLE not in os.environ and "BFTRAINER_WORKER" not in os.environ
        self._file: Any = None
        self._folder, self._directions = Path(), Directions()
        self._run: Any = None
        self._variables: Variables | None = None
        self._optimizers: list[Any] = []  # that have stepped, in the order of their first steps
        self._unused: list[tuple[int, Any]] = []  # made after the first step: (the step, the optimizer)
        self._steps: list[int] = []  # of each optimizer, in this process
        self._depth = self._inside = 0  # of forward calls, and of steps within a step
        self._offset = 0  # step of the training minus steps of this process
        self._at = 0
        self._is_aside = False  # what follows is no part of the training
        self._rows: list[str] = []
        self._open: tuple[Any, ...] = ()  # what the outermost forward pass that is under way was given
        self._is_seen = False  # its samples are noted
        self._names: dict[int, str] = {}
        self._models: dict[int, torch.nn.Module] = {}
        self._kinds: set[str] = set()
        self._grads: list[list[float] | None] = []
        self._eps = 0.0
        self._begun_at = 0.0
        self._generator = torch.Generator()

    def forked(self) -> None:
        """Start a new record in a forked process. From a warm one, it gets random numbers of its own, as a
        process that was started afresh draws without a seed."""
        was_warm = self._file is None
        self.forget()
        if was_warm:
            torch.default_generator.seed()

    def give_up(self, why: str) -> None:
        """Stop recording, and say why."""
        self.is_off = True
        if self._file is not None:
            self._write("error", why=why[-2000:])

    # what the library tells

    @harmless
    def enters(self, run: Any) -> None:
        """See `Watcher.enters`."""
        self._run = run
        self._begin()

    @harmless
    def said(self, kind: str, fields: Mapping[str, Any]) -> None:
        """See `Watcher.said`."""
        self._is_aside |= kind == "aside"
        if kind in ("kv", "busy", "aside"):
            return
        self._begin()
        if kind == "broken":
            self._note_broken()
        kept = ("step", "generation", "size", "survivor", "metrics", "rank", "warned", "now", "reason")
        self._write("said", kind=kind, **{name: fields[name] for name in kept if name in fields})
        if kind == "moved" and self._steps and self._run is None:
            self._offset = int(fields["step"]) - self._steps[0]

    def _note_broken(self) -> None:
        """This rank has not taken the step: its samples come again. Or others have taken it before they lost
        the member: then this rank gets their state, and its samples are part of the step anyway."""
        if self._rows and self._run is not None:
            rank, size, _ = _place(self._run)
            self._write("broken", at=self._position() + 1, rank=rank, size=size, rows=self._rows)
        self._rows = []

    # what PyTorch calls

    @harmless
    def made(self, optimizer: Any) -> None:
        """An optimizer has been made."""
        if self._optimizers:
            self._unused.append((self._at, optimizer))

    @harmless
    def before_forward(self, module: torch.nn.Module, args: Any) -> None:
        """A module is about to be called."""
        if type(module).__name__ in WRAPPERS:
            return
        self._depth += 1
        if self._depth > 1 or not torch.is_grad_enabled() or not module.training:
            return
        self._begin()
        self._open, self._is_seen = args, False
        if not self._begun_at:
            self._begun_at = time.monotonic()
            if self._directions.noise == "seed":
                interventions.draw_other_numbers()
        if id(module) not in self._models:
            self._models[id(module)] = module
            self._kinds |= {type(each).__name__ for each in module.modules()}
            for name, each in module.named_parameters():
                self._names.setdefault(id(each), name)

    @harmless
    def after_forward(self, module: torch.nn.Module, args: Any, *more: Any) -> None:
        """A module has been called. `more`: keywords, which PyTorch leaves out after an error, and output."""
        if type(module).__name__ in WRAPPERS:
            return
        self._depth = max(0, self._depth - 1)
        if self._depth or not torch.is_grad_enabled() or not module.training or self._file is None:
            return
        if not self._is_seen:
            self._see((*args, *(value for given in more[:-1] for value in given.values())))
        result = first_batch(more[-1:])
        if result is not None and result.dtype.is_floating_point:
            self._eps = max(self._eps, torch.finfo(result.dtype).eps)

    def _see(self, given: tuple[Any, ...]) -> None:
        batch = first_batch(given)
        if batch is None or (batch.requires_grad and not batch.is_leaf):  # what a model gave, as to a loss
            return
        if self._run is None or self._run.weight:  # else a stand-in for no samples
            self._rows += rows(batch)

    @harmless
    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer is about to step. One that wraps another is noted once."""
        if self._is_aside:
            return
        self._begin()
        self._inside += 1
        if self._depth and not self._is_seen:  # within a forward pass, as Lightning's training_step in DDP's
            self._see(self._open)
            self._is_seen = True
        own = parameters_of(optimizer)
        if self._inside == 1 and not any(optimizer is each for each in self._optimizers):
            self._optimizers.append(optimizer)
            self._steps.append(0)
            self._unused = [(at, each) for at, each in self._unused if each is not optimizer]
            self._eps = max([self._eps, *(torch.finfo(p.dtype).eps for p in own if p.is_floating_point())])
            self._write(
                "initial",
                opt=len(self._optimizers) - 1,
                names=[self._names.get(id(p), f"parameter {i}") for i, p in enumerate(own)],
                sizes=[p.numel() for p in own],
                params=[fingerprint(p) for p in own],
                kinds=sorted(self._kinds),
                eps=self._eps,
                at=self._position(),
            )
        if self._directions.noise == "rounding":
            interventions.round_gradients(own, self._eps, self._generator)
        self._grads = [None if p.grad is None else _dense(p.grad) for p in own]

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer has stepped: note it, and do what the directions say for this step.

        Raises:
            SystemExit: the run is cut here.
        """
        self._note_step(optimizer)
        if self._is_cut:
            raise SystemExit(0)

    _is_cut = False

    @harmless
    def _note_step(self, optimizer: Any) -> None:
        self._inside = max(0, self._inside - 1)
        if self._inside or self._is_aside:
            return
        number = next(i for i, each in enumerate(self._optimizers) if each is optimizer)
        self._steps[number] += 1
        self._at = self._position() + 1 if self._run is not None else self._offset + self._steps[number]
        rank, size, is_whole = _place(self._run)
        self._begun_at = self._begun_at or time.monotonic()
        self._variables = self._variables or Variables()
        self._write(
            "step",
            opt=number,
            n=self._steps[number],
            at=self._at if self._run is not None else None,
            before=self._run.position.samples if self._run is not None else None,
            rank=rank,
            size=size,
            whole=is_whole,
            params=[fingerprint(p) for p in parameters_of(optimizer)],
            grads=self._grads,
            hyper=_hyper(optimizer),
            rows=self._rows,
            vars=self._variables.numbers(),
        )
        self._rows = []
        if number == 0:
            self._obey(self._at, rank)

    def _obey(self, step: int, rank: int) -> None:
        told, folder = self._directions, self._folder
        if interventions.is_to_die(told, folder, step, rank):
            self._write("killed", at=step, rank=rank)
            interventions.die()
        interventions.hold(told, folder, step, rank)
        if interventions.is_cut(told, folder, step, time.monotonic() - self._begun_at):
            if self._run is not None:
                self._run.stop()
            else:
                self._is_cut = True

    # where it stands

    def _begin(self) -> None:
        if self._file is not None:
            return
        root = Path(os.environ.get(VARIABLE, ""))
        here = Path.cwd().resolve()
        if VARIABLE not in os.environ or not here.is_relative_to(root):
            self.is_off = True
            return
        self._folder = root / here.relative_to(root).parts[0]
        self._directions = Directions.of(self._folder)
        folder = self._folder / RECORD
        folder.mkdir(exist_ok=True)
        self._path = folder / f"{time.time_ns()}-{os.getpid()}"
        self._file = self._path.with_suffix(".jsonl").open("a", encoding="utf-8", buffering=1)
        self._write("begin", pid=os.getpid())
        atexit.register(self._at_end)

    @harmless
    def _at_end(self) -> None:
        if not self._optimizers:
            return
        rank, size, is_whole = _place(self._run)
        kept = final_state(self._optimizers, self._models.values())
        np.savez(self._path.with_suffix(".npz"), **kept)
        mine = {id(p) for each in self._optimizers for p in parameters_of(each)}
        unused = [at for at, each in self._unused if {id(p) for p in parameters_of(each)} & mine]
        contents = (self._variables or Variables()).contents()
        self._write("final", rank=rank, size=size, whole=is_whole, vars=contents, unused=unused)
        if interventions.is_to_die_in_the_end(self._directions, self._folder, self._at, rank):
            self._write("killed", at=self._at, rank=rank, ended=True)
            sys.stdout.flush()
            interventions.die()

    def _position(self) -> int:
        return int(self._run.position.step) if self._run is not None else self._offset

    def _write(self, event: str, **fields: Any) -> None:
        self._file.write(json.dumps({"event": event, "time": time.time(), **fields}) + "\n")


class CostRecorder(StepRecorder):
    """Like `StepRecorder`; where directions ask for steps' costs, it records these alone."""

    _costs: Any = None

    def observers(self, trained: Any) -> Sequence[Any]:
        """See `Watcher.observers`."""
        is_asked = self._is_asked()
        if self.is_off:
            return ()
        from bftrainer.elastic.recorded.costs import AskedSteps, StepCosts  # noqa: PLC0415  the library

        if not is_asked:
            return [AskedSteps(self)]
        self.is_off = True
        self._costs = StepCosts(trained, self._write, self._directions.cut or 1)
        return [self._costs]

    def enters(self, run: Any) -> None:
        if self._costs is not None:
            self._costs.run = run
        super().enters(run)

    @harmless
    def _is_asked(self) -> bool:
        self._begin()
        return not self.is_off and self._directions.costs


def _place(run: Any) -> tuple[int, int, bool]:
    """Rank, ranks, and whether this process has the training's state."""
    if run is not None:
        whole = run._parts.peers.place is not None  # a newcomer takes steps on what it has yet to get
        return run.rank, run.size, whole
    horovod = sys.modules.get("horovod.torch")
    if horovod is not None and horovod.is_initialized():
        return horovod.rank(), horovod.size(), True
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size(), True
    return int(os.environ.get("RANK", "0")), 1, True


def _dense(grad: torch.Tensor) -> list[float]:
    return fingerprint(grad.to_dense() if grad.is_sparse else grad)


def _hyper(optimizer: Any) -> dict[str, float]:
    """Learning rates and other numbers of the groups."""
    found: dict[str, float] = {}
    for number, group in enumerate(optimizer.param_groups):
        where = f" of group {number}" if len(optimizer.param_groups) > 1 else ""
        for name, value in group.items():
            if (isinstance(value, torch.Tensor) and value.numel() == 1) or type(value) in (int, float):
                found[f"{name}{where}"] = float(value)
    return found
