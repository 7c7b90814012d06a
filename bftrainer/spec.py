"""Trainer specs: YAML in, `TrainerSpec` out. Everything in a spec is hostile until it has been here.

Errors name the file, the line, the value and what to do; all of a spec's errors come at once.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from bftrainer import curve
from bftrainer.errors import BftrainerError
from bftrainer.model import Cost, Points, RescaleCosts, Scalability, TrainerSpec

MAX_CHARACTERS = 256 * 1024
MAX_NODES = 1_000_000
MAX_DEPTH = 16
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Nodes = Annotated[int, Field(ge=1, le=MAX_NODES)]


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character: remove it")
    return text


def _whole(n: float) -> int:
    if not math.isfinite(n) or n != int(n):
        raise ValueError(f"{n} nodes: node counts are whole numbers")
    return int(n)


def _possible(pairs: list[list[float]]) -> list[list[float]]:
    curve.make((_whole(n), rate) for n, rate in pairs)
    return pairs


def _possible_or_none(pairs: list[list[float]]) -> list[list[float]]:
    """On a class of nodes, no points mean that the trainer cannot use it."""
    return _possible(pairs) if pairs else pairs


Text = Annotated[str, AfterValidator(_no_nul)]
Pairs = list[Annotated[list[float], Field(min_length=2, max_length=2)]]


class SpecError(BftrainerError, ValueError):
    """One or more things wrong with a spec, one line each: `file:line: where: what; remedy`."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Range(_Strict):
    min: Nodes = 1
    max: Nodes

    @model_validator(mode="after")
    def _ordered(self) -> _Range:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}; lower min or raise max")
        return self


class _Cost(_Strict):
    stall_s: Seconds = 0.0
    init_s: Seconds = 0.0


class _Rescale(_Strict):
    up: _Cost
    down: _Cost

    @model_validator(mode="after")
    def _no_newcomers_in_shrinking(self) -> _Rescale:
        if self.down.init_s:
            raise ValueError(
                f"down.init_s is {self.down.init_s}, but shrinking has no new nodes; leave it out"
            )
        return self


class _Work(_Strict):
    samples: Annotated[int, Field(ge=1, le=10**15)]


class _Checkpoint(_Strict):
    dir: Text | None = None
    every_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 5.0


class _Batch(_Strict):
    """A fixed global batch, or a fixed batch per node with what the learning rate does."""

    total: Annotated[int, Field(ge=1, le=10**9)] | None = Field(None, alias="global")
    per_node: Annotated[int, Field(ge=1, le=10**9)] | None = None
    lr: Literal["none", "linear", "sqrt"] | None = None
    warmup_steps: Annotated[int, Field(ge=0, le=10**9)] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> _Batch:
        if (self.total is None) is (self.per_node is None):
            raise ValueError("a batch is either global or per_node; give one of them")
        if self.total is not None and (self.lr is not None or self.warmup_steps is not None):
            raise ValueError("with a global batch the learning rate stays; leave lr and warmup_steps out")
        return self

    def items(self) -> tuple[tuple[str, int | str], ...]:
        return tuple(sorted(self.model_dump(by_alias=True, exclude_none=True).items()))


class Spec(_Strict):
    name: Text
    command: Annotated[list[Text], Field(min_length=1, max_length=1000)]
    nodes: _Range
    launcher: Literal["native", "horovod", "torchrun"] = "native"
    work: _Work | Literal["until_exit"] = "until_exit"
    curve: Annotated[Pairs, AfterValidator(_possible)] | None = None
    rescale: _Rescale | None = None
    scalability: Literal["auto", "given"] = "auto"
    curves: dict[str, Annotated[Pairs, AfterValidator(_possible_or_none)]] = {}
    weight: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] = 1.0
    priority: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] = 1.0
    workdir: Text = "."
    env: dict[str, Text] = {}
    checkpoint: _Checkpoint = _Checkpoint()
    batch: _Batch | None = None

    @field_validator("name")
    @classmethod
    def _usable_in_paths(cls, name: str) -> str:
        if not _NAME.fullmatch(name) or name.isdecimal():
            raise ValueError(
                f"{name!r}: use lower-case letters, digits, '.', '_' and '-', at most 63, starting with "
                "a letter or digit, and not digits alone"
            )
        return name

    @field_validator("env")
    @classmethod
    def _settable(cls, env: dict[str, str]) -> dict[str, str]:
        for key in env:
            if not _ENV.fullmatch(key) or key.startswith("BFTRAINER_"):
                raise ValueError(f"{key!r}: not a variable that a spec can set; rename it")
        return env

    @model_validator(mode="after")
    def _something_is_given(self) -> Spec:
        if self.scalability == "given" and self.curve is None:
            raise ValueError(
                "scalability: given, but there is no curve to go by; give one, or leave scalability out"
            )
        return self

    def points(self) -> Points | None:
        return None if self.curve is None else curve.make((int(n), rate) for n, rate in self.curve)


def load(path: Path) -> TrainerSpec:
    """Read one spec from a file; relative paths in it count from the file's folder.

    Raises:
        SpecError: unreadable or not a valid spec.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: {error}") from error
    return parse(text, str(path), path.parent)


def require_workdir(spec: TrainerSpec, path: Path) -> None:
    """Raises `SpecError` unless the workdir of the spec in the file `path` is a folder for this user.

    Only who will use the folder looks for it: a daemon that serves many users opens no files of theirs.
    """
    if not _is_folder(spec.workdir):
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        line = next((n for n, words in lines if words.lstrip().startswith("workdir")), 1)
        raise SpecError(f"{path}:{line}: workdir: no folder {spec.workdir!r}; make it or name another")


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:  # a name that no file system takes
        return False


def parse(text: str, name: str, base: Path) -> TrainerSpec:
    """One spec from its YAML text. `name` is shown in errors, `base` is where relative paths start."""
    document = compose(text, name)
    return _convert(document, (), base)


def parse_many(text: str, name: str) -> list[TrainerSpec]:
    """A YAML list of specs, for replays. Raises `SpecError` also for names that occur twice."""
    document = compose(text, name)
    if not isinstance(document.value, list):
        raise SpecError(f"{name}:1: expected a list of specs; begin each with '- name: ...'")
    specs = [_convert(document, (i,), Path()) for i in range(len(document.value))]
    seen: set[str] = set()
    for i, spec in enumerate(specs):
        if spec.name in seen:
            raise SpecError(f"{name}:{document.line((i,))}: the name {spec.name!r} occurs twice; rename one")
        seen.add(spec.name)
    return specs


# --- YAML with line numbers ----------------------------------------------------------------------

Location = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Document:
    name: str
    value: Any
    lines: dict[Location, int]

    def line(self, where: Location) -> int:
        while where not in self.lines and where:
            where = where[:-1]
        return self.lines.get(where, 1)

    def at(self, where: Location) -> Any:
        value = self.value
        for key in where:
            value = value[key]
        return value


def compose(text: str, name: str) -> Document:
    if len(text) > MAX_CHARACTERS:
        raise SpecError(f"{name}: {len(text)} characters; a spec has at most {MAX_CHARACTERS}")
    try:
        refuse_the_exotic(text, name)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise SpecError(f"{name}:1: empty; a spec needs at least name, command and nodes")
        lines: dict[Location, int] = {}
        return Document(name, _plain(root, (), lines, name), lines)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise SpecError(f"{name}{at}: not YAML: {problem}") from error
    except (OverflowError, UnicodeError) as error:  # "\\UFFFFFFFF"
        raise SpecError(f"{name}: not YAML: {error}") from error


def refuse_the_exotic(text: str, name: str) -> None:
    """No aliases (they can blow a small file up), no tags, no deep nesting: specs need none of them."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            raise SpecError(f"{name}:{line}: *{event.anchor}: write the value out")
        tag = getattr(event, "tag", None)
        if tag:
            raise SpecError(f"{name}:{line}: the tag {tag!r}: leave it out")
        if depth > MAX_DEPTH:
            raise SpecError(f"{name}:{line}: not a spec: nested more than {MAX_DEPTH} deep")


def _plain(node: yaml.Node, where: Location, lines: dict[Location, int], name: str) -> Any:
    lines.setdefault(where, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise SpecError(f"{name}:{line}: a key must be a plain word")
            if key in found:
                raise SpecError(f"{name}:{line}: {key!r} is given twice; keep one of them")
            lines[(*where, key)] = line
            found[key] = _plain(value_node, (*where, key), lines, name)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_plain(child, (*where, i), lines, name) for i, child in enumerate(node.value)]
    try:
        value = yaml.SafeLoader("").construct_object(node)
        str(value).encode()
    except (ValueError, ArithmeticError) as error:  # 2021-99-99, a number of thousands of digits, ...
        line = node.start_mark.line + 1
        raise SpecError(f"{name}:{line}: {node.value[:40]!r} is no value: {str(error)[:80]}") from error
    return value


# --- from checked data to the domain -------------------------------------------------------------


def _convert(document: Document, where: Location, base: Path) -> TrainerSpec:
    data = document.at(where)
    if not isinstance(data, dict):
        raise SpecError(f"{document.name}:{document.line(where)}: {data!r} is no spec; expected 'name: ...'")
    try:
        spec = Spec.model_validate(data)
    except ValidationError as error:
        # "work" is a choice of forms: report what is wrong with the form that was meant
        errors = [explain(document, where, e) for e in error.errors() if not other_form(e, data)]
        raise SpecError("\n".join(text for _, text in sorted(errors))) from error
    return TrainerSpec(
        name=spec.name,
        command=tuple(spec.command),
        n_min=spec.nodes.min,
        n_max=spec.nodes.max,
        launcher=spec.launcher,
        samples=spec.work.samples if isinstance(spec.work, _Work) else None,
        curve=spec.points(),
        costs=_costs(spec.rescale),
        scalability=Scalability(spec.scalability),
        curves=tuple(
            (name, curve.make((int(n), rate) for n, rate in pairs) if pairs else ())
            for name, pairs in sorted(spec.curves.items())
        ),
        weight=spec.weight,
        priority=spec.priority,
        workdir=_absolute(base, spec.workdir),
        env=tuple(sorted(spec.env.items())),
        checkpoint_dir=_absolute(base, spec.checkpoint.dir) if spec.checkpoint.dir else "",
        checkpoint_every_s=spec.checkpoint.every_s,
        batch=spec.batch.items() if spec.batch else (),
    )


def _absolute(base: Path, path: str) -> str:
    """A whole path, made of its words alone: where links lead is for who opens it."""
    return os.path.abspath(base / path)  # noqa: PTH100  Path.resolve would follow links


def _costs(rescale: _Rescale | None) -> RescaleCosts | None:
    if rescale is None:
        return None
    return RescaleCosts(
        up=Cost(stall_s=rescale.up.stall_s, init_s=rescale.up.init_s), down=Cost(stall_s=rescale.down.stall_s)
    )


def other_form(error: ErrorDetails, data: dict[str, Any]) -> bool:
    if error["loc"][:1] != ("work",):
        return False
    return (error["type"] == "literal_error") is isinstance(data.get("work"), dict)


def explain(document: Document, where: Location, error: ErrorDetails) -> tuple[int, str]:
    at, text = _said(document, where, error)
    return at, f"{document.name}:{at}: {text}"


def _said(document: Document, where: Location, error: ErrorDetails) -> tuple[int, str]:
    loc = error["loc"]
    if loc[:1] == ("work",):  # the second part names which of its forms was tried
        loc = loc[:1] + loc[2:]
    line = document.line((*where, *loc))
    place = ".".join(str(part) for part in loc)
    value = error["input"]
    shown = "" if isinstance(value, dict | list) else f"{value!r}: "
    kind, message = error["type"], error["msg"]
    if kind == "model_type":
        return line, f"{place}: {shown}expected further keys: {', '.join(_valid_keys(loc))}"
    if kind == "extra_forbidden":
        key = str(loc[-1])
        valid = _valid_keys(loc[:-1])
        near = difflib.get_close_matches(key, valid, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(valid)}"
        return line, f"unknown key {place!r}; {hint}"
    if kind == "missing":
        return line, f"{place!r} is missing; add it"
    if kind == "value_error":
        text = message.removeprefix("Value error, ")
        return line, f"{place + ': ' if place else ''}{text}"
    remedy = {
        "string_type": "; quote it if it is meant as text",
        "int_type": "; give a whole number, all digits written out",
        "dict_type": "; give a list of points for each class" if loc == ("curves",) else "",
        "list_type": "; give a list, such as [python, train.py]" if loc == ("command",) else "; give a list",
        "too_long": "; each point is [nodes, samples/s]" if loc[:1] in (("curve",), ("curves",)) else "",
        "too_short": "; each point is [nodes, samples/s]" if loc[:1] in (("curve",), ("curves",)) else "",
        "int_from_float": "; give a whole number",
        "float_type": "; give a number",
        "literal_error": "; give 'until_exit' or 'samples: N'" if loc == ("work",) else "",
    }.get(kind, "")
    return line, f"{place}: {shown}{_decapitalised(message)}{remedy}"


def _valid_keys(loc: Location) -> list[str]:
    model: Any = Spec
    for part in loc:
        if not isinstance(part, str):
            continue
        annotation = model.model_fields[part].annotation
        options = [annotation, *get_args(annotation)]
        model = next(o for o in options if isinstance(o, type) and issubclass(o, BaseModel))
    return [field.alias or name for name, field in model.model_fields.items()]


def _decapitalised(message: str) -> str:
    return message[:1].lower() + message[1:]
