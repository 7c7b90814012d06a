"""Compares the steps and the final state of a run with those of the run in peace. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bftrainer.rehearsal.deviations import Aspect, Deviation
from bftrainer.rehearsal.records import Array, Key, RunRecord, StepFacts, distance
from bftrainer.rehearsal.yardstick import UNSEEDED, UNSEEDED_EPS, Yardstick

SAME = 1e-6
"""Learning rates and the like that lie no further apart, relatively, are the same."""
SMALL = 1e-2
"""A parameter below this part of the largest, or its state, is measured by that: gradients may be sums whose
parts cancel each other."""
FINAL = 20.0
"""Single entries may lie further apart than a tensor as a whole."""
ALIKE = 0.02
"""Gradients that differ by a factor are its multiples up to this share."""


def unseeded(alone: RunRecord, again: RunRecord) -> Iterator[Deviation]:
    """Differences between two undisturbed runs of which only the rounding differs."""
    key = (0, 1)
    if key not in alone.steps or key not in again.steps or not alone.starts or not again.starts:
        return
    about: dict[str, Any] = {"run": again.name, "step": 1}
    begin = distance(alone.starts[0].weights, again.starts[0].weights, alone.sizes)
    one, other = alone.steps[key], again.steps[key]
    if begin.max() > UNSEEDED:
        name = _name(alone, int(begin.argmax()))
        text = f"{name}: another value before the first step, in two runs that are the same"
        yield Deviation(aspect=Aspect.WEIGHTS, text=text, name=name, facts={"unseeded": "weights"}, **about)
    elif one.rows and one.rows != other.rows:
        text = "the first step has other samples, in two runs that are the same"
        yield Deviation(aspect=Aspect.SAMPLES, text=text, facts={"unseeded": "samples"}, **about)
    elif (apart := float(distance(one.weights, other.weights, alone.sizes).max())) > max(
        UNSEEDED, UNSEEDED_EPS * alone.eps
    ):
        text = "the first step comes out differently, in two runs that are the same"
        facts = {"unseeded": "steps"}
        yield Deviation(aspect=Aspect.WEIGHTS, text=text, apart=apart, facts=facts, **about)


def compare_steps(alone: RunRecord, run: RunRecord, yardstick: Yardstick) -> Iterator[Deviation]:
    """Deviations of a run's steps: the first of each aspect."""
    yield from _ranks_apart(alone, run, yardstick)
    if run.length != alone.length:
        of = {"ranks": max((facts.ranks for facts in run.steps.values()), default=1)}
        text = f"{run.length} steps; one process took {alone.length}"
        yield Deviation(aspect=Aspect.STEPS, run=run.name, text=text, facts=of)
    yield from _begun_anew(alone, run, yardstick)
    found = set[Aspect]()
    for key in sorted(alone.steps.keys() & run.steps.keys(), key=lambda key: (key[1], key[0])):
        for each in _step(alone, run, key, yardstick):
            if each.aspect not in found:
                found.add(each.aspect)
                yield each
        if Aspect.WEIGHTS in found:
            return


def compare_variables(alone: RunRecord, others: Sequence[RunRecord], run: RunRecord) -> Iterator[Deviation]:
    """Variables of the script that differ from those on one process, once it was resumed. `others`: more
    undisturbed runs, in which a time or a number that follows from random ones differs as well."""
    found: dict[str, str] = {}
    for start in run.starts[1:]:
        key = (0, start.step)
        if key not in alone.steps or key not in run.steps:
            continue
        usual = [each.steps[key].variables for each in others if key in each.steps]
        for name, (mine, theirs) in behind(alone.steps[key], run.steps[key]).items():
            if not _close(mine, theirs) and all(_close(each.get(name, theirs), theirs) for each in usual):
                found.setdefault(
                    name, f"{name} is {mine:.6g} in step {start.step}, on one process {theirs:.6g}"
                )
    for name, value in alone.variables.items():
        mine = run.variables.get(name, value)
        steady = all(_close(each.variables.get(name, value), value) for each in others)
        if steady and not _close(mine, value):
            found.setdefault(name, f"{name} is {mine:.6g} in the end, on one process {value:.6g}")
    if found:
        yield Deviation(
            aspect=Aspect.VARIABLES,
            run=run.name,
            text=f"variables of the script that begin anew: {'; '.join(list(found.values())[:5])}",
            is_fault=False,
            facts={"names": list(found)},
        )


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-4 * max(abs(one), abs(other))


def compare_final(alone: RunRecord, run: RunRecord, yardstick: Yardstick) -> Iterator[Deviation]:
    """Entries of the final state that deviate, the first of each kind."""
    if run.length != alone.length or not run.final:
        return
    ranks = max((facts.ranks for facts in run.steps.values()), default=1)
    allowed = FINAL * yardstick.allowed((0, alone.length), ranks=ranks)
    told, sizes = set[str](), _largest(alone)
    for name, expected in sorted(alone.final.items(), key=lambda item: _order(item[0])):
        kind = name.partition("/")[0]
        if kind in told or (kind.startswith("buffers") and ranks > 1):
            continue
        least = SMALL * sizes.get(_of_which(name), 0.0)
        text, apart = _entry(expected, run.final.get(name), allowed, least)
        if text:
            told.add(kind)
            aspect = Aspect.WEIGHTS if kind.startswith("weights") else Aspect.STATE
            yield Deviation(
                aspect=aspect,
                run=run.name,
                text=f"in the end, {_entry_name(alone, name)}: {text}",
                name=name,
                apart=apart,
                allowed=allowed,
                facts={"final": kind},
            )


def _largest(record: RunRecord) -> dict[str, float]:
    """The largest size of the weights, and of each kind of optimizer state, such as `exp_avg`."""
    sizes: dict[str, float] = {}
    for name, values in record.final.items():
        if name.startswith(("weights", "optimizer")) and values.size:
            kind = _of_which(name)
            sizes[kind] = max(sizes.get(kind, 0.0), _size(values.astype(np.float64)))
    return sizes


def _of_which(name: str) -> str:
    """An entry of the final state without the number of its parameter."""
    kind, _, rest = name.partition("/")
    return f"{kind}/{rest.partition('/')[2]}"


def _size(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _entry(
    expected: Array, found: Array | None, allowed: float, least: float = 0.0
) -> tuple[str, float | None]:
    """Deviation of an entry, in words; else empty. One that is smaller than `least` is measured by
    that: where gradients would be zero, as those of the bias of attention's keys, it consists of rounding."""
    if found is None:
        return "it is not there", None
    if found.shape != expected.shape:
        return f"it has {found.size} elements; on one process {expected.size}", None
    if not expected.size or np.array_equal(found, expected):
        return "", None
    one, other = found.astype(np.float64), expected.astype(np.float64)
    scale = max(_size(other), _size(one), least, 1e-12)
    gaps = np.abs(np.nan_to_num(one - other, nan=np.inf)) / scale
    worst = int(gaps.argmax())
    if gaps[worst] <= allowed:
        return "", None
    return f"[{worst}] is {one[worst]:.6g}; on one process {other[worst]:.6g}", float(gaps[worst])


def _order(name: str) -> tuple[int, str]:
    kinds = ("weights", "optimizer", "buffers")
    return next((i for i, kind in enumerate(kinds) if name.startswith(kind)), len(kinds)), name


def _entry_name(record: RunRecord, name: str) -> str:
    """An entry of the final state in words: "weight", or "exp_avg of weight"."""
    kind, which, *key = name.split("/", 2)
    if kind not in ("weights", "optimizer"):
        return name
    return " of ".join((*key, _name(record, int(which))))


def _name(record: RunRecord, index: int) -> str:
    return record.names[index] if index < len(record.names) else f"tensor {index}"


def _ranks_apart(alone: RunRecord, run: RunRecord, yardstick: Yardstick) -> Iterator[Deviation]:
    """The members of one run have other weights than each other: no noise explains that."""
    for key, facts in sorted(run.steps.items(), key=lambda item: item[0][1]):
        allowed = yardstick.rounded(key)
        if facts.apart > allowed:
            text = f"after step {key[1]} the ranks' weights are {facts.apart:.1e} apart"
            about: dict[str, Any] = {"step": key[1], "apart": facts.apart, "allowed": allowed}
            yield Deviation(aspect=Aspect.RANKS, run=run.name, text=text, **about)
            return


def _begun_anew(alone: RunRecord, run: RunRecord, yardstick: Yardstick) -> Iterator[Deviation]:
    """Processes that began from the weights of the beginning though the run had come further."""
    if not alone.starts:
        return
    anew = [
        start
        for start in run.starts[1:]
        if distance(alone.starts[0].weights, start.weights, alone.sizes).max() <= yardstick.rounded((0, 1))
    ]
    if anew and run.length > 1:
        text = (
            f"{len(anew)} of {len(run.starts) - 1} restarts began from nothing; {run.taken} steps were taken "
            "in all"
        )
        yield Deviation(aspect=Aspect.PROGRESS, run=run.name, text=text, facts={"starts": len(anew)})


def _step(alone: RunRecord, run: RunRecord, key: Key, yardstick: Yardstick) -> Iterator[Deviation]:
    one, other = alone.steps[key], run.steps[key]
    step = key[1]
    about: dict[str, Any] = {"run": run.name, "step": step}
    if one.rows and _are_others(one, other, random=yardstick.random_samples):
        yield _samples(alone, one, other, about)
    for name, value in one.settings.items():
        found = other.settings.get(name, value)
        if abs(found - value) > SAME * max(abs(value), abs(found)):
            text = f"{name} is {found:.6g} in step {step}; on one process {value:.6g}"
            yield Deviation(aspect=Aspect.SETTINGS, name=name, text=text, **about)
    sizes = alone.sizes if key[0] == 0 else ()
    apart = distance(one.weights, other.weights, sizes)
    allowed = yardstick.allowed(key, ranks=other.ranks)
    worst = int(apart.argmax())
    if apart[worst] > allowed:
        facts = {"factor": factor(one, other), "ranks": other.ranks, "variables": behind(one, other)}
        name = _name(alone, worst) if key[0] == 0 else f"tensor {worst} of optimizer {key[0]}"
        text = (
            f"{name} after step {step}: {apart[worst]:.1e} apart, where rounding and noise explain "
            f"{allowed:.1e}"
        )
        yield Deviation(
            aspect=Aspect.WEIGHTS,
            name=name,
            text=text,
            apart=float(apart[worst]),
            allowed=allowed,
            facts=facts,
            **about,
        )


def _are_others(one: StepFacts, other: StepFacts, *, random: bool) -> bool:
    """True if a step has other samples or, where random numbers change them, more or fewer."""
    if random:
        return one.rows.total() != other.rows.total() or other.shared
    return one.rows != other.rows


def _samples(alone: RunRecord, one: StepFacts, other: StepFacts, about: dict[str, Any]) -> Deviation:
    mine, expected = other.rows.total(), one.rows.total()
    common = (one.rows & other.rows).total()
    all_rows = set().union(*(facts.rows.keys() for facts in alone.steps.values()))
    facts = {
        "known": sum(count for row, count in other.rows.items() if row in all_rows) / max(mine, 1),
        "common": common / max(expected, 1),
        "times": mine / max(expected, 1),
        "ranks": other.ranks,
        "shared": other.shared,
    }
    text = (
        f"step {about['step']} has {mine} samples, of which {common} are among the {expected} on one process"
    )
    return Deviation(aspect=Aspect.SAMPLES, text=text, facts=facts, **about)


def factor(one: StepFacts, other: StepFacts) -> float | None:
    """Factor by which the gradients of a step exceed those on one process; None if none, or 1."""
    if one.gradients.shape != other.gradients.shape:
        return None
    first, second = one.gradients[:, 1:].ravel(), other.gradients[:, 1:].ravel()
    square = float(first @ first)
    if not square or not np.isfinite(square):
        return None
    found = float(first @ second) / square
    rest = float(np.linalg.norm(second - found * first)) / max(float(np.linalg.norm(second)), 1e-300)
    return found if rest < ALIKE and abs(found - 1.0) > ALIKE else None


def behind(one: StepFacts, other: StepFacts) -> dict[str, tuple[float, float]]:
    """Variables of the script that are not what they are on one process at this step: (here, there)."""
    return {
        name: (other.variables[name], value)
        for name, value in one.variables.items()
        if name in other.variables and other.variables[name] != value
    }
