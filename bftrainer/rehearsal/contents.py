"""Compares what a run reports and writes: figures and files. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bftrainer.rehearsal.deviations import Aspect, Deviation
from bftrainer.rehearsal.records import FileFacts, RunRecord

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w])")
NOISES = 5.0
LEAST = 1e-6
"""Numbers in files and figures that lie no further apart, relatively, are the same."""
FEW = 3
"""Figures with fewer values may be the same with two seeds by chance."""
LONGEST = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Peace:
    """The undisturbed runs together: the first, one with rounding, and one with another seed."""

    alone: RunRecord
    again: RunRecord | None = None
    seed: RunRecord | None = None
    tolerance: float = LEAST
    slack: float = 0.0  # on several processes, as of batch normalisation
    noise: float = 0.0  # how far weights lie apart with another seed; 0 of a script that draws nothing


PADDED = "total_flos"
"""A figure of Hugging Face at the end that depends on the padding of a rank's samples."""


def compare_figures(peace: Peace, run: RunRecord) -> Iterator[Deviation]:
    """Figures that rank 0 has reported, and those given with steps."""
    alone = peace.alone
    for name, steps in alone.reported.items():
        if name == PADDED:
            continue
        if peace.again is not None and not _alike(steps, peace.again.reported.get(name, {}), 1e-3):
            continue  # a time, or something else that is never twice the same
        spread = _spread(steps, (peace.seed or alone).reported.get(name, {}))
        allowed = _allowed(peace, spread, run, by_chance=_few_fractions(steps.values()))
        found = run.reported.get(name, {})
        if not found:
            text = f"{name} is never reported"
            yield Deviation(
                aspect=Aspect.FIGURES, run=run.name, name=name, text=text, facts={"missing": True}
            )
            continue
        for step in sorted(steps.keys() & found.keys()):
            if (apart := _apart(found[step], steps[step])) > allowed:
                text = f"{name} at step {step} is {found[step]:.6g}; on one process {steps[step]:.6g}"
                about: dict[str, Any] = {"step": step, "apart": apart, "allowed": allowed}
                yield Deviation(aspect=Aspect.FIGURES, run=run.name, name=name, text=text, **about)
                break
    yield from _shares(peace, run)


def _shares(peace: Peace, run: RunRecord) -> Iterator[Deviation]:
    """Figures given with steps that are rank 0's share: no fault, as each step has its own samples."""
    for name, steps in peace.alone.figures.items():
        again = steps if peace.again is None else peace.again.figures.get(name, {})
        if not _alike(_of_rank_0(steps), _of_rank_0(again), 1e-3):
            continue  # a time, as above
        for step, values in run.figures.get(name, {}).items():
            if step in steps and len(values) > 1 and _apart(values[0], steps[step][0]) > 1e-3:
                mean = sum(values) / len(values)
                text = (
                    f"{name}, given with each step, is that of rank 0's share: {values[0]:.4g} at step "
                    f"{step}, where the ranks' mean is {mean:.4g}"
                )
                yield Deviation(
                    aspect=Aspect.FIGURES,
                    run=run.name,
                    name=name,
                    text=text,
                    step=step,
                    is_fault=False,
                    facts={"share": True},
                )
                break


def _of_rank_0(steps: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {step: values[0] for step, values in steps.items() if values}


def compare_files(peace: Peace, run: RunRecord) -> Iterator[Deviation]:
    """Files that the script has written: which are there, and what they hold."""
    expected = peace.alone.files
    stable = {name for name in expected if peace.again is None or name in peace.again.files}
    for name in sorted(stable - run.files.keys()):
        yield _file(run, name, f"{name} is not there", missing=True)
    known = expected.keys() | (peace.again.files.keys() if peace.again else set())
    extra = sorted(run.files.keys() - known)
    if extra and stable == expected.keys():
        more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        yield _file(run, extra[0], f"{extra[0]}{more}: one process writes no such file", extra=True)
    for name in sorted(stable & run.files.keys()):
        found = _compare_file(peace, run, name)
        if found is not None:
            yield found


def _compare_file(peace: Peace, run: RunRecord, name: str) -> Deviation | None:
    one, other = peace.alone.files[name], run.files[name]
    again = peace.again.files.get(name) if peace.again else None
    seed = peace.seed.files.get(name) if peace.seed else None
    if one.lines is not None and other.lines is not None:
        shape = _lines(one.lines, other.lines)
        if again is not None and again.lines is not None and len(again.lines) != len(one.lines):
            return None
        if shape is not None:
            return _file(run, name, f"{name}: {shape.text}", **{shape.kind: True})
        texts = (_text(one), _text(other), _text(again), _text(seed))
        said = _numbers(peace, run, *texts)
        return _file(run, name, f"{name}: {said}") if said else None
    if one.entries is not None and other.entries is not None:
        said = _entries(peace, run, (one, other, again, seed))
        return _file(run, name, f"{name}: {said}") if said else None
    is_stable = again is not None and again.digest == one.digest
    if is_stable and one.digest != other.digest:
        return _file(run, name, f"{name} has other contents")
    return None


def _file(run: RunRecord, name: str, text: str, **facts: bool) -> Deviation:
    is_changed = bool(run.events)  # steps are repeated after a loss, and each rank may have a file of its own
    is_minor = facts.get("repeated", False) if is_changed else facts.get("extra", False)
    return Deviation(
        aspect=Aspect.FILES, run=run.name, name=name, text=text, facts=dict(facts), is_fault=not is_minor
    )


@dataclass(frozen=True, slots=True)
class _Shape:
    kind: str
    text: str


def _lines(one: Sequence[str], other: Sequence[str]) -> _Shape | None:
    """Difference between a file's number of lines and that on one process; None if equal."""
    if len(one) == len(other):
        return None
    said = f"{len(other)} lines; on one process {len(one)}"
    if len(other) < len(one):
        return _Shape("anew", said)
    keys, own = Counter(map(_key, one)), Counter(map(_key, other))
    if own.keys() <= keys.keys():
        return _Shape("repeated", f"{said}: some are there twice")
    return _Shape("longer", said)


def _key(line: str) -> str:
    return NUMBER.sub(lambda found: f"{float(found[0]):.3g}", line)


def _text(file: FileFacts | None) -> str | None:
    return None if file is None or file.lines is None else "\n".join(file.lines)


def _numbers(
    peace: Peace, run: RunRecord, one: str | None, other: str | None, again: str | None, seed: str | None
) -> str:
    """The first number of a text that is another, with its line; empty if all are the same."""
    if one is None or other is None:
        return ""
    texts = [one, other, again if again is not None else one, seed if seed is not None else one]
    parts = [NUMBER.split(text) for text in texts]
    values = [NUMBER.findall(text) for text in texts]
    if parts[0] != parts[1] or len(values[0]) != len(values[1]):
        if parts[0] != parts[2]:
            return ""  # it is never twice the same
        mine, theirs = next(
            ((a, b) for a, b in zip(other.split("\n"), one.split("\n"), strict=False) if _key(a) != _key(b)),
            ("", ""),
        )
        return f"{_cut(mine)!r}; on one process {_cut(theirs)!r}"
    return _first_number(peace, run, values, one)


def _first_number(peace: Peace, run: RunRecord, values: Sequence[Sequence[str]], text: str) -> str:
    usable = [v for v in values[2:] if len(v) == len(values[0])]
    again = values[2] if len(values[2]) == len(values[0]) else values[0]
    noise = max(
        (_apart(float(a), float(b)) for v in usable[1:] for a, b in zip(values[0], v, strict=True)),
        default=0.0,
    )
    few = _few_fractions([float(value) for value in values[0]])
    allowed = _allowed(peace, noise if noise > 1e-3 else 0.0, run, by_chance=few)
    for index, (mine, theirs) in enumerate(zip(values[1], values[0], strict=True)):
        if mine == theirs or _apart(float(again[index]), float(theirs)) > 1e-4:
            continue
        gap = abs(float(mine) - float(theirs))
        if (
            gap <= min(_last_digit(theirs), _last_digit(mine))
            or _apart(float(mine), float(theirs)) <= allowed
        ):
            continue
        place = [found.start() for found in NUMBER.finditer(text)][index]
        start = text.rfind("\n", 0, place) + 1
        name = re.sub(r"[\s\"':,=({\[]+$", "", text[start:place])[-40:]
        name = re.split(r"[,{]", name)[-1].strip(" \"'") or f"line {text.count(chr(10), 0, place) + 1}"
        return f"{name}: {mine}; on one process {theirs}"
    return ""


def _entries(peace: Peace, run: RunRecord, files: Sequence[FileFacts | None]) -> str:
    """The first named value that is another: numbers, or fingerprints of tensors."""
    one, other, again, seed = (dict((file.entries or {}) if file else {}) for file in files)
    apart = {name: _far(seed[name], value) for name, value in one.items() if name in seed}
    noise = max((gap for gap in apart.values() if gap < float("inf")), default=0.0)
    for name, value in one.items():
        if again and again.get(name) is not None and _far(again[name], value) > 1e-3:
            continue
        if name not in other:
            return f"{name} is missing"
        is_drawn = apart.get(name, 0.0) > peace.tolerance
        few = isinstance(value, float) and _few_fractions([value])
        if _far(other[name], value) > _allowed(peace, noise if is_drawn else 0.0, run, by_chance=few):
            return f"{name} is {_shown(other[name])}; on one process {_shown(value)}"
    extra = sorted(other.keys() - one.keys())
    return f"{extra[0]} is there; not on one process" if extra else ""


def _far(one: object, other: object) -> float:
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        scale = max([abs(float(x)) for x in (one[0], other[0])] + [1e-12])
        return max(abs(float(a) - float(b)) for a, b in zip(one, other, strict=True)) / scale
    if isinstance(one, int | float) and isinstance(other, int | float):
        return _apart(float(one), float(other))
    return 0.0 if one == other else float("inf")


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"a tensor of norm {value[0]:.6g}"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)[:60]


def _allowed(peace: Peace, noise: float, run: RunRecord, *, by_chance: bool = False) -> float:
    """Largest distance of numbers that lie `noise` apart with another seed. As one pair of seeds may come
    close to each other, they may lie as far apart as weights do; `by_chance`: also where they agree."""
    several = run.nodes > 1 or any(facts.ranks > 1 for facts in run.steps.values())
    drawn = max(NOISES * noise, peace.noise) if noise or by_chance else 0.0
    return max(peace.tolerance, drawn, peace.slack if several else 0.0)


def _few_fractions(values: Collection[float]) -> bool:
    """True if so few numbers, such as one accuracy, may agree for two seeds by chance."""
    return len(values) < FEW and any(not float(value).is_integer() for value in values)


def _alike(one: Mapping[int, float], other: Mapping[int, float], within: float) -> bool:
    return one.keys() == other.keys() and all(_apart(one[step], other[step]) <= within for step in one)


def _spread(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    found = max((_apart(one[step], other[step]) for step in one.keys() & other.keys()), default=0.0)
    return found if found > 1e-6 else 0.0


def _apart(one: float, other: float) -> float:
    if one == other or (one != one and other != other):  # noqa: PLR0124  NaN
        return 0.0
    return abs(one - other) / max(abs(one), abs(other), 1e-9)


def _last_digit(text: str) -> float:
    """Value of the last printed digit of a number; 0 for a whole one."""
    mantissa, _, exponent = text.lower().partition("e")
    if "." not in mantissa:
        return 0.0
    return 1.01 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
