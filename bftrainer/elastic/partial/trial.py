"""Watches full steps of a run, to find out in which order and when a backward pass completes gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from bftrainer.elastic.loop.observers import TrainerFails
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.messages.partial import LOSS_BACKWARD, REENTRANT, SHARED_WEIGHTS


@dataclass(slots=True)
class _Calls:
    """The calls of a module in a forward pass."""

    recorded: int = 0  # with gradients, and without
    unrecorded: int = 0
    first: list[torch.Tensor] = field(default_factory=list)  # what the first gave, and the last got
    last: list[torch.Tensor] = field(default_factory=list)


class TrialWatch:
    """Watches the backward passes of a step while it is on. The script's own step is the trial.

    Args:
        models: by name.
    """

    def __init__(self, models: Mapping[str, torch.nn.Module]) -> None:
        self._models = models
        self._is_on = False
        self._hooks: list[Any] = []
        self._calls: dict[str, _Calls] = {}
        self._is_forward = True
        self._begun: float | Any | None = None
        self._completed: dict[int, float | Any] = {}
        self._now: Callable[[], Any] = time.perf_counter

    def watch(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Watch the step that begins, in which all of these parameters are trained."""
        self._is_on, self._completed = True, {}
        self._now = _clock(next(iter(parameters.values())))
        self._hooks = [
            p.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]
            for p in parameters.values()
            if p.requires_grad
        ]
        for model_name, model in self._models.items():
            for name, module in model.named_modules():
                if any(p.requires_grad for p in module.parameters()):
                    about = self._noting(f"{model_name}.{name}".strip("."))
                    self._hooks.append(module.register_forward_hook(about, with_kwargs=True))

    def before_backward(self) -> None:
        """The backward pass of a micro-batch begins.

        Raises:
            TrainerFails: a module shares its weights with itself, one time after the other.
        """
        if not self._is_on:
            return
        self._is_forward, self._completed = False, {}  # a checkpoint may compute modules once more
        self._check_shared()
        self._begun = self._now()

    def after_backward(self, part: MicroBatch) -> None:
        """The backward pass of a micro-batch is over.

        Raises:
            TrainerFails: a module is under reentrant checkpointing.
            RuntimeError: the script has begun the backward pass by itself.
        """
        if self._is_on:
            if part.last and not part.went_backward:
                raise RuntimeError(LOSS_BACKWARD.say())
            self._check_reentrant()
            self._forget()

    def close(self) -> None:
        """Stop watching."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._is_on, self._begun = [], False, None
        self._forget()

    def read(self, parameters: Mapping[str, torch.Tensor]) -> list[tuple[float, float]]:
        """Number of each parameter, in the order of completion, and the seconds of the backward pass after
        which its gradient was complete. One without a gradient counts as the last."""
        begun = self._begun
        self.close()
        times = _seconds(begun, [*self._completed.values()])
        numbers = {key: (float(i), s) for (i, key), s in zip(enumerate(self._completed), times, strict=True)}
        never = float(len(parameters)), max(times, default=0.0)
        return [numbers.get(id(p), never) for p in parameters.values()]

    def _note(self, parameter: torch.Tensor) -> None:
        self._completed[id(parameter)] = self._now()

    def _noting(self, name: str) -> Callable[..., None]:
        def note(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if not self._is_forward:
                return
            calls = self._calls.setdefault(name, _Calls())
            if not torch.is_grad_enabled():
                calls.unrecorded += 1
                return
            calls.recorded += 1
            if calls.recorded == 1:
                calls.first = [t for t in _tensors(output) if t.requires_grad]
            else:
                calls.last = [t for t in _tensors((args, kwargs)) if t.requires_grad]

        return note

    def _check_shared(self) -> None:
        """Refuse modules whose later call depends on what an earlier one gave; the outermost is named."""
        several = sorted((n for n, c in self._calls.items() if c.recorded > 1), key=lambda n: n.count("."))
        for name in several:
            calls = self._calls[name]
            if not calls.first or not calls.last:
                continue
            reached = torch.autograd.grad(
                calls.last,
                calls.first,
                [torch.ones_like(t) for t in calls.last],
                retain_graph=True,
                allow_unused=True,
            )
            if any(each is not None for each in reached):
                raise TrainerFails(SHARED_WEIGHTS.say(name=name))

    def _check_reentrant(self) -> None:
        """Refuse modules whose forward pass only the backward pass recorded."""
        for model_name, model in self._models.items():
            for name, module in model.named_modules():
                calls = self._calls.get(f"{model_name}.{name}".strip("."))
                own = any(id(p) in self._completed for p in module.parameters(recurse=False))
                if calls is not None and own and calls.unrecorded and not calls.recorded:
                    raise TrainerFails(REENTRANT.say(name=name))

    def _forget(self) -> None:
        self._calls, self._is_forward = {}, True


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)


def _clock(parameter: torch.Tensor) -> Callable[[], Any]:
    """Clock: on a GPU, of the GPU's own work."""
    if not parameter.is_cuda:
        return time.perf_counter

    def event() -> Any:
        now = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        now.record()
        return now

    return event


def _seconds(begun: Any, marks: list[Any]) -> list[float]:
    """Seconds at each mark since the beginning; where that is unknown, since the first mark."""
    if not marks:
        return []
    since = marks[0] if begun is None else begun
    if isinstance(since, float):
        return [mark - since for mark in marks]
    marks[-1].synchronize()
    return [since.elapsed_time(mark) / 1000.0 for mark in marks]
