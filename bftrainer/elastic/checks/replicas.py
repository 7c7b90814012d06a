"""Finds out whether the ranks of a script on torchrun or Horovod train one model: by what happens to its
weights.

The script's model is not known here, but its optimizers are, as they step. Each rank notes a few weights
before some of the steps, and tells them at the run's store, where rank 0 compares them. No rank waits for
another, so a script may step as it likes. What is found is a warning: ranks may well train apart on purpose,
and those that average now and then are found to do so later; then the warning is taken back.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

import torch
from torch import distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported conditionally
from torch.optim.optimizer import register_optimizer_step_pre_hook

from bftrainer.elastic.checks.traces import (
    MOST_OPTIMIZERS,
    Apart,
    Trace,
    from_text,
    is_look,
    judged,
    to_text,
    window_of,
)
from bftrainer.elastic.checks.whole_data import SHARED, WholeData
from bftrainer.elastic.horovod import place
from bftrainer.elastic.process import warnings
from bftrainer.elastic.process.channel import VARIABLE
from bftrainer.elastic.process.warnings import note
from bftrainer.messages.ranks import DATA_CHANGED, RANKS_APART, RANKS_DATA

TENSORS, EACH = 8, 2
"""Tensors of an optimizer, and elements of each, to note."""
ANSWER = timedelta(seconds=5)
SHARDED = ("_is_flat_param", "_fsdp_flattened", "ds_id", "tensor_model_parallel")
"""Attributes of tensors of which each rank has a part of its own."""
OWN_RANKS = ("deepspeed", "megatron", "colossalai", "fairscale")
"""Libraries that step each rank's part of a model with an optimizer of PyTorch."""

HOROVODS = "horovod.torch.optimizer"
"""Optimizers of this module call the hooks of a step twice: for themselves, and for what they wrap."""


class RanksNow(NamedTuple):
    """The ranks that train together: this one's number, how many they are, and which of this process's
    memberships it is."""

    rank: int
    size: int
    number: int = 0


class Board(Protocol):
    """Board on which the ranks of one membership exchange messages."""

    def set(self, key: str, value: str) -> None:
        """Set the value of a key."""

    def check(self, keys: Sequence[str]) -> bool:
        """True if all of these keys are set."""

    def get(self, key: str) -> bytes:
        """Value of a key."""


@dataclass(slots=True)
class _Stepped:
    """An optimizer, the places of the weights that are noted, and its steps and calls of its hook so far."""

    optimizer: weakref.ref[torch.optim.Optimizer]
    places: list[tuple[weakref.ref[torch.Tensor], int, int]]  # parameter, element, number of the parameter
    trace: Trace
    steps: int = 0
    calls: int = 0


class Replicas:
    """Notes weights as optimizers step; rank 0 compares. `tell` is called with the warnings, as they change.

    Args:
        store: where the ranks of a membership tell each other.
        data: finds the loader of the training data.
    """

    def __init__(self, store: Callable[[], Board], tell: Callable[[], None], data: WholeData) -> None:
        self._open, self._tell, self.data = store, tell, data
        self._world = RanksNow(0, 1)
        self._store: Board | None = None
        self._stepped: list[_Stepped] = []
        self._told: dict[str, str] = {}  # what is wrong -> the warning
        self.is_over = False

    def before_step(self, world: RanksNow, optimizer: torch.optim.Optimizer) -> None:
        """Must be called before every step of any optimizer. The ranks of another world begin with the same
        weights, and with other steps: earlier notes say nothing of them."""
        if world != self._world:
            self._world, self._store, self._stepped = world, None, []
        found = self._known(optimizer)
        if found is None:
            return
        found.calls += 1
        if type(optimizer).__module__ == HOROVODS and not found.calls % 2:
            return
        if window_of(found.steps) is not None:
            found.trace.note(found.steps, [_element(tensor(), i) for tensor, i, _ in found.places])
            self._publish()
        if self._world.rank == 0 and is_look(found.steps):
            self.compare()
        found.steps += 1

    def compare(self, *, at_end: bool = False) -> None:
        """On rank 0: compare with the others' messages. `at_end`: no more steps follow."""
        if not self._stepped or self._store is None or self._world.rank != 0:
            return
        others = dict(self._others())
        found = list(self._judged(others, at_end=at_end))
        apart = [self._said(mine, rank, what) for mine, rank, what in found if isinstance(what, Apart)]
        if apart or (found and all(what is True for _, _, what in found)):
            self._warn("weights", apart[0] if apart else "")
        same, mine = [data for _, data in others.values()], self.data.mark
        is_shared = mine.startswith(SHARED)
        reads_all = len(same) == self._world.size - 1 and all(each and each == mine for each in same)
        self._warn("data", self.data.told(self._world.size) if reads_all and not is_shared else "")
        differs = is_shared and any(each.startswith(SHARED) and each != mine for each in same)
        self._warn("ranks' data", RANKS_DATA.say() if differs else "")

    def _known(self, optimizer: torch.optim.Optimizer) -> _Stepped | None:
        for each in self._stepped:
            if each.optimizer() is optimizer:
                return each
        if len(self._stepped) >= MOST_OPTIMIZERS or any(name in sys.modules for name in OWN_RANKS):
            return None
        tensors = [p for group in optimizer.param_groups for p in group["params"]]
        known = {id(tensor()) for each in self._stepped for tensor, _, _ in each.places}
        own = [p for p in tensors if p.is_floating_point() and p.requires_grad and p.numel()]
        if not own or any(map(_is_part, tensors)):
            return None
        places = list(_places(own))
        if known & {id(tensor()) for tensor, _, _ in places}:  # an optimizer within another one
            return None
        self.data.is_stepped()
        if self._world.rank == 0:
            self._warn("epoch", self.data.uneven)
            told = self.data.changed
            self._warn("starts' data", DATA_CHANGED.say(difference=told) if told else "")
        layout = json.dumps([[list(p.shape), str(p.dtype)] for p in own])
        trace = Trace(hashlib.blake2b(layout.encode(), digest_size=8).hexdigest())
        self._stepped.append(_Stepped(weakref.ref(optimizer), places, trace))
        return self._stepped[-1]

    def _publish(self) -> None:
        if self._store is None:
            self._store = self._open()
        text = to_text([each.trace for each in self._stepped], self.data.mark)
        self._store.set(_key(self._world.rank), text)

    def _others(self) -> Iterator[tuple[int, tuple[list[Trace], str]]]:
        store = self._store
        for rank in range(1, self._world.size):
            if store is not None and store.check([_key(rank)]):
                with contextlib.suppress(ValueError):
                    yield rank, from_text(store.get(_key(rank)))

    def _judged(
        self, others: dict[int, tuple[list[Trace], str]], *, at_end: bool
    ) -> Iterator[tuple[_Stepped, int, Apart | bool]]:
        """Verdicts on each optimizer's trace against that of each other rank, if any."""
        for number, mine in enumerate(self._stepped):
            for rank, (traces, _) in others.items():
                found = judged(mine.trace, traces[number], at_end=at_end) if number < len(traces) else None
                if found is not None:
                    yield mine, rank, found

    def _said(self, mine: _Stepped, rank: int, found: Apart) -> str:
        optimizer = mine.optimizer()
        parameter = mine.places[found.index][2]
        return RANKS_APART.say(
            parameter=parameter,
            optimizer=type(optimizer).__name__,
            mine=found.mine,
            theirs=found.theirs,
            rank=rank,
            steps=found.steps,
            compared=found.compared,
        )

    def _warn(self, what: str, text: str) -> None:
        """Warn of what is wrong, once, or take it back."""
        before = self._told.get(what, "")
        if bool(before) == bool(text):
            return
        self._told[what] = text
        if text:
            warnings.note_warning(text)
        else:
            warnings.take_back(before)
        self._tell()

    def end(self) -> None:
        """Stop watching, and withdraw the warnings."""
        self.is_over = True
        for what in tuple(self._told):
            self._warn(what, "")


def _key(rank: int) -> str:
    return f"bftrainer-replicas/{rank}"


def _is_part(tensor: torch.Tensor) -> bool:
    """True if a parameter is a rank's part of a larger one, or no tensor whose elements can be read."""
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return not is_plain or tensor.is_meta or any(hasattr(tensor, name) for name in SHARDED)


def _places(tensors: list[torch.Tensor]) -> Iterator[tuple[weakref.ref[torch.Tensor], int, int]]:
    """Elements from all over these tensors."""
    for number in sorted({round(i * (len(tensors) - 1) / (TENSORS - 1)) for i in range(TENSORS)}):
        tensor = tensors[number]
        for index in sorted({(tensor.numel() - 1) * (2 * i + 1) // (2 * EACH) for i in range(EACH)}):
            yield weakref.ref(tensor), index, number


def _element(tensor: torch.Tensor | None, index: int) -> float:
    """One of its elements, in row-major order; no number if it is gone."""
    if tensor is None or index >= tensor.numel():
        return float("nan")
    return float(tensor.detach()[torch.unravel_index(torch.tensor(index), tensor.shape)])


_watched: Replicas | None = None


def watch() -> None:
    """Watch, from now on, the optimizers of this process, if it is one of several ranks on torchrun, or a
    worker of Horovod, that bftrainer has started. Idempotent."""
    global _watched  # noqa: PLW0603  a process has one set of ranks
    if _watched is not None or (ranks := place.world if place.is_taken() else _of_torchrun()) is None:
        return
    data = WholeData()
    _watched = found = Replicas(place.DriversBoard if place.is_taken() else _store, _tell, data)

    def before_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
        if torch.compiler.is_compiling() or found.is_over:
            return
        if (world := ranks()) is None or _is_capturing():
            return
        _harmless(lambda: found.before_step(RanksNow(*world), optimizer))

    register_optimizer_step_pre_hook(before_step)
    data.watch()
    atexit.register(look)


def _of_torchrun() -> Callable[[], tuple[int, int, int] | None] | None:
    """Reads this process's rank while all have a group; None if it is no rank of several."""
    rank, size, port = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    if not (rank.isdecimal() and size.isdecimal() and port.isdecimal()) or int(size) < 2:
        return None
    world = (int(rank), int(size), 0)
    return lambda: world if dist.is_initialized() and dist.get_world_size() == world[1] else None


def look() -> None:
    """No more steps follow: compare what there is."""
    found = _watched
    if found is not None and not found.is_over:
        _harmless(lambda: found.compare(at_end=True))


def data(before: Mapping[str, str]) -> dict[str, str]:
    """The data set that the ranks share, in short, for a checkpoint. `before`: that of the last checkpoint,
    with which it is compared at the first step, and which is kept where the ranks share none."""
    if _watched is None:
        return dict(before)
    _watched.data.before = before
    return _watched.data.shared or dict(before)


def end() -> None:
    """Stop watching: the ranks are compared by other means, or may differ."""
    if _watched is not None:
        _watched.end()


def _harmless(do: Callable[[], None]) -> None:
    """A script does not fail by being watched."""
    try:
        with torch.no_grad():
            do()
    except Exception as error:  # noqa: BLE001
        if _watched is not None:
            _watched.is_over = True
        note(f"the ranks' weights are not compared any more: {type(error).__name__}: {error}")


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _store() -> Any:
    """A connection to the run's store of its own: torch's may be held by a call that waits."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=ANSWER, use_libuv=False)


def _tell() -> None:
    """Send the warnings to the agent, for a script that has not attached: else its reports have them."""
    orders = os.environ.get(VARIABLE)
    if orders:
        line = json.dumps({"type": "warned", "warned": warnings.last()}, ensure_ascii=False) + "\n"
        os.write(json.loads(orders)["fd"], line.encode(errors="replace"))
