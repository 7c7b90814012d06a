"""What of a script may change while another's loop trains, beside its model and its callbacks: its data, what
makes batches of it, its optimiser, and its own variables."""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from bftrainer.elastic.marks import is_scripts_own
from bftrainer.elastic.own_state import OwnState

OF_OPTIMIZERS = frozenset({"state", "param_groups", "defaults"})
"""What `state_dict` of every optimiser has, or the script itself gives."""


def own_objects(
    loader: Any, optimizers: Iterable[Any], others: Iterable[Any], known: Collection[object]
) -> list[OwnState]:
    """What a script keeps in attributes of its data sets, samplers, collator and optimisers, and in its
    variables.

    Args:
        loader: of the training's data.
        optimizers: as the framework has them.
        others: more that the script makes, such as a module of data.
        known: what is followed elsewhere, or saved.
    """
    batches = getattr(loader, "collate_fn", None)
    data = [*_data_sets(getattr(loader, "dataset", None)), *_samplers(loader), *others]
    data.append(getattr(batches, "__self__", batches))
    given = [getattr(one, "optimizer", one) for one in optimizers]  # as accelerate and Lightning wrap them
    seen = [*known, *data, *given]
    found = [
        OwnState(each, but=_set_anew(each), saved=seen)
        for each in {id(one): one for one in data}.values()
        if _is_followed(each)
    ]
    return [*found, *of_optimizers(given, known), *(OwnState(file, saved=seen) for file in _own_files())]


def of_optimizers(given: Iterable[Any], known: Collection[object] = ()) -> list[OwnState]:
    """What optimisers of a script's own classes keep beside what `state_dict` returns. `known`: what is
    followed elsewhere, or saved."""
    return [
        OwnState(each, but=OF_OPTIMIZERS, saved=known, held=getattr(each, "state_dict", None))
        for each in given
        if _is_followed(each)
    ]


def by_name(states: Iterable[OwnState], called: Mapping[int, str] | None = None) -> dict[str, OwnState]:
    """States by the names of their objects' classes, those of a file's variables by the file's. Several of
    one class have the script's names for them, such as `Pairs 'train'`, or are numbered.

    `called`: the script's names by ids; by default those of its variables.
    """
    names = _variables() if called is None else called
    same: dict[str, list[OwnState]] = {}
    for state in states:
        same.setdefault(_kind(state.of), []).append(state)
    found: dict[str, OwnState] = {}
    for kind, alike in same.items():
        for number, state in enumerate(alike, 1):
            own = names.get(id(state.of))
            name = kind if len(alike) == 1 else f"{kind} #{number}" if own is None else f"{kind} {own!r}"
            found[name if name not in found else f"{kind} #{number}"] = state
    return found


def with_inner(schedulers: Iterable[Any]) -> list[Any]:
    """Schedulers with those that they are made of, whose state they have in their own."""
    return [each for one in schedulers for each in (one, *with_inner(getattr(one, "_schedulers", ())))]


def of_model(model: torch.nn.Module | None) -> list[object]:
    """A model with all that its checkpoint has."""
    if model is None:
        return []
    return [*model.modules(), *model.parameters(), *model.buffers()]


def _is_followed(value: Any) -> bool:
    """Tensors of a TensorDataset and indices of a Subset are the script's, whatever the class is."""
    own = is_scripts_own(type(value)) or isinstance(
        value, torch.utils.data.TensorDataset | torch.utils.data.Subset
    )
    return own and not _is_function(value) and isinstance(getattr(value, "__dict__", None), dict)


def _is_function(value: Any) -> bool:
    return inspect.isroutine(value) or inspect.isclass(value)


def _set_anew(data: Any) -> frozenset[str]:
    """What a framework tells a data set at each start: what its `set_epoch` sets and does not read, as it
    does with a count of its own."""
    told = getattr(data, "set_epoch", None)
    if told is None:
        return frozenset()
    code = getattr(inspect.unwrap(told), "__code__", None)
    steps = [] if code is None else list(dis.get_instructions(code))
    stored, read = (
        {one.argval for one in steps if one.opname == name} for name in ("STORE_ATTR", "LOAD_ATTR")
    )
    return frozenset({"epoch", "_epoch"} | stored - read)


def _data_sets(data: Any) -> Iterator[Any]:
    """A data set, and those that it is made of."""
    if data is None:
        return
    yield data
    within = getattr(data, "datasets", None)
    for each in (getattr(data, "dataset", None), *(within if isinstance(within, list | tuple) else ())):
        yield from _data_sets(each)


def _samplers(loader: Any) -> Iterator[Any]:
    """What chooses the samples, and those that it is made of."""
    for name in ("sampler", "batch_sampler"):
        within = getattr(loader, name, None)
        if within is not None and within is not loader:
            yield within
            yield from _samplers(within)


def _kind(of: object) -> str:
    if not isinstance(of, ModuleType):
        return type(of).__name__
    path = Path(str(of.__file__)).resolve()
    folder = _folder()
    return path.name if folder is None else str(path.relative_to(folder))


def _variables() -> dict[int, str]:
    """The names of the script's variables by the ids of their values."""
    return {id(value): name for file in _own_files() for name, value in list(vars(file).items())}


def _folder() -> Path | None:
    """The script's folder; None where there is none, or the program is a library's."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main is None or "site-packages" in Path(main).resolve().parts:
        return None
    return Path(main).resolve().parent


def _own_files() -> list[Any]:
    """The modules of the script: it, and what it imports from its folder."""
    folder = _folder()
    if folder is None:
        return []
    there = [sys.modules["__main__"], *(each for name, each in sys.modules.items() if name != "__main__")]
    return [each for each in there if each is not None and _is_in(folder, getattr(each, "__file__", None))]


def _is_in(folder: Path, file: str | None) -> bool:
    if not file:
        return False
    path = Path(file).resolve()
    return folder in path.parents and "site-packages" not in path.parts
