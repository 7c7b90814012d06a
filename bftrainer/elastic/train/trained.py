"""The objects that a run trains: models, optimisers and their schedulers, one of each or several by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from bftrainer.elastic.process import warnings
from bftrainer.messages.arguments import (
    CLOSURE,
    LAZY_LAYERS,
    NAMES,
    NO_OPTIMIZER,
    OPTIMIZER_INIT,
    SCHEDULER_NAME,
    SHARDED,
    STRANGE_PARAMETERS,
    SYNC_BATCH_NORM,
    WHICH_OPTIMIZER,
)

ONE = ""
"""The name of what a run has one of."""


@dataclass(frozen=True, slots=True)
class Trained:
    """Models, optimisers and schedulers by name, `ONE` where the script gave one without a name.

    A scheduler has the name of its optimiser. Models and optimisers need not have the same names.
    """

    models: Mapping[str, torch.nn.Module]
    optimizers: Mapping[str, torch.optim.Optimizer]
    schedulers: Mapping[str, Any]
    _every: list[torch.Tensor] = field(init=False, repr=False)
    """All models' parameters, tied ones once: to walk through the modules takes long beside a short step."""

    def __post_init__(self) -> None:
        every = {id(p): p for model in self.models.values() for p in model.parameters()}
        object.__setattr__(self, "_every", [*every.values()])

    @property
    def nbytes(self) -> int:
        """The bytes of all parameters."""
        return sum(p.nbytes for p in self._every)

    @property
    def is_several(self) -> bool:
        """True if a step of the run consists of steps of several optimisers, in the order of the script."""
        return len(self.optimizers) > 1

    @property
    def model(self) -> torch.nn.Module:
        """Module that the script calls: the model, or a ModuleDict of several."""
        return self.models[ONE] if ONE in self.models else torch.nn.ModuleDict(self.models)

    def name(self, asked: str | None) -> str:
        """The name of the optimiser that the script asks for; None where there is only one.

        Raises:
            ValueError: no such optimiser, or several and no name.
        """
        if asked is None and not self.is_several:
            return next(iter(self.optimizers))
        if asked is None or asked not in self.optimizers:
            names = ", ".join(f'run.step("{name}")' for name in self.optimizers if name != ONE)
            said = "several optimisers" if asked is None else f"no optimiser {asked!r}"
            raise ValueError(WHICH_OPTIMIZER.say(asked=said, calls=names or "run.step() without a name"))
        return asked

    def parameters(self, name: str) -> list[torch.Tensor]:
        """The trainable parameters whose gradients a step of this optimiser averages; with one optimiser,
        those of all models."""
        if self.is_several:
            groups = self.optimizers[name].param_groups
            return [p for group in groups for p in group["params"] if p.requires_grad]
        return [p for p in self._every if p.requires_grad]

    def among(self, name: str) -> list[torch.Tensor] | None:
        """Like `parameters`, for several optimisers; None: those of the only one, which are all."""
        return self.parameters(name) if self.is_several else None

    def parts(self) -> dict[str, Any]:
        """Its parts of the training state: `model`, or `model.G` and so on."""
        kinds = {"model": self.models, "optimizer": self.optimizers, "scheduler": self.schedulers}
        return {
            kind if name == ONE else f"{kind}.{name}": part
            for kind, named in kinds.items()
            for name, part in named.items()
        }


def trained(model: Any, optimizer: Any, scheduler: Any) -> Trained:
    """Read a script's model, optimiser and scheduler, each alone or as a mapping by name.

    Raises:
        TypeError, ValueError: what a run cannot train, with what to do instead.
    """
    found = Trained(_named("model", model), _named("optimizer", optimizer), _named("scheduler", scheduler))
    for module in found.models.values():
        _check_whole(module)
    every = [each for module in found.models.values() for each in module.modules()]
    if any(isinstance(each, torch.nn.SyncBatchNorm) for each in every):
        warnings.warn(SYNC_BATCH_NORM.say())
    known = {id(p) for module in found.models.values() for p in module.parameters()}
    for name, one in found.optimizers.items():
        if not isinstance(one, torch.optim.Optimizer):
            raise TypeError(NO_OPTIMIZER.say(given=type(one).__name__))
        _check_optimizer(one)
        strange = [p for group in one.param_groups for p in group["params"] if id(p) not in known]
        if strange:
            raise ValueError(STRANGE_PARAMETERS.say(name=f"{name and ' '}{name}", count=len(strange)))
    for name in found.schedulers:
        if name not in found.optimizers:
            raise ValueError(SCHEDULER_NAME.say(name=name, known=", ".join(found.optimizers)))
    return found


def _named(what: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return {ONE: given}
    if not given or not all(isinstance(name, str) and name.isidentifier() for name in given):
        raise ValueError(NAMES.say(what=what, names=[*given]))
    return dict(given)


def _check_whole(model: torch.nn.Module) -> None:
    if any(isinstance(p, torch.nn.parameter.UninitializedParameter) for p in model.parameters()):
        raise TypeError(LAZY_LAYERS.say())
    sharded = any(type(p).__name__ == "DTensor" for p in model.parameters())
    if sharded or any(type(each).__name__ == "FullyShardedDataParallel" for each in model.modules()):
        raise TypeError(SHARDED.say())


def _check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise TypeError(OPTIMIZER_INIT.say(optimizer=type(optimizer).__name__))
    if needs_closure(optimizer):
        raise TypeError(CLOSURE.say(optimizer=type(optimizer).__name__))


def needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """True if its step needs a closure, which computes the loss, as that of LBFGS."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty
