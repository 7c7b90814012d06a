"""The keys of a trainer spec, their types and bounds."""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from bftrainer.messages.specs import (
    ADAPTS_BY,
    ADAPTS_TO,
    ADASCALE,
    BATCH_FORMS,
    BOUNDS_WITHOUT_INITIAL,
    BRANCHES,
    BRANCHES_GIVEN,
    FOR_TORCHRUN,
    GPU_WORKERS,
    NAME,
    NO_CURVE,
    NO_NODES,
    NO_VARIABLE,
    NODES_AND_GPUS,
    RATE_STAYS,
    SETS_VARIABLE,
    SHRINKING_INIT,
    STARTED_APART,
    STARTED_OFTEN,
    TWO_CURVES,
)
from bftrainer.model.text import plain
from bftrainer.model.trainer import MOST_SAMPLES, Points
from bftrainer.performance import curve
from bftrainer.performance.observe import FASTEST, SLOWEST
from bftrainer.spec.command_line import words_of
from bftrainer.spec.hints import starter
from bftrainer.spec.sizes import MAX_NODES, MAX_POINTS, Sizes, Strict, Whole

MAX_WORDS = 250
"""Words of a command, and variables of an environment: few, see `located_yaml.SPEC`."""
MAX_CLASSES = 64
"""Classes of nodes with a curve of their own."""
MOST = 1e6
"""The highest weight and priority; a site may allow its users less."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_SET = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]


def _lines(text: str) -> str:
    return plain(text, lines=True)


def _word(text: str) -> str:
    if not text:
        raise ValueError("the word is empty; leave it out")
    return _lines(text)


def _split(command: object) -> object:
    return words_of(command) if isinstance(command, str) else command


def _whole(n: float) -> int:
    if not math.isfinite(n) or n != int(n):
        raise ValueError(f"{n} nodes: node counts are whole numbers")
    if n > MAX_NODES:
        raise ValueError(f"{n:g} nodes: at most {MAX_NODES:,}; leave the point out")
    return int(n)


def _possible(pairs: list[list[float]]) -> list[list[float]]:
    for n, rate in curve.make((_whole(n), rate) for n, rate in pairs):
        if not SLOWEST <= rate <= FASTEST:
            raise ValueError(f"{rate:g} samples/s on {n} nodes; rates are from {SLOWEST:g} to {FASTEST:g}")
    return pairs


def _possible_or_none(pairs: list[list[float]]) -> list[list[float]]:
    """On a class of nodes, no points mean that the trainer cannot use it."""
    return _possible(pairs) if pairs else pairs


Text = Annotated[str, AfterValidator(plain)]
Lines = Annotated[str, AfterValidator(_lines)]
Word = Annotated[str, AfterValidator(_word)]
Pairs = Annotated[
    list[Annotated[list[float], Field(min_length=2, max_length=2)]], Field(max_length=MAX_POINTS)
]


class _Cost(Strict):
    stall_s: Seconds = 0.0
    init_s: Seconds = 0.0


class Rescale(Strict):
    """Costs of a rescale: `stall_s` for all members, `init_s` for new nodes, in seconds."""

    up: _Cost
    down: _Cost

    @model_validator(mode="after")
    def _no_newcomers_in_shrinking(self) -> Rescale:
        if self.down.init_s:
            raise ValueError(SHRINKING_INIT.say(seconds=self.down.init_s))
        return self


class Work(Strict):
    """Samples after which the work is done, counted over all nodes. Those of `progress` count by their worth
    relative to those of the initial batch, where it adapts."""

    samples: Annotated[Whole, Field(ge=1, le=10**15)] | None = None
    progress: Annotated[Whole, Field(ge=1, le=10**15)] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Work:
        if (self.samples is None) is (self.progress is None):
            raise ValueError(
                "work: give samples: N, or progress: N (samples by what they are worth), one of the two; or "
                "until_exit"
            )
        return self


class _Checkpoint(Strict):
    dir: Text | None = None
    every_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 5.0
    interval_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] | None = None


class _Batch(Strict):
    """A fixed global batch; a fixed batch per node and how the learning rate follows the nodes; or one that
    adapts, from `initial` to `max`."""

    total: Annotated[Whole, Field(ge=1, le=10**9)] | None = Field(None, alias="global")
    per_node: Annotated[Whole, Field(ge=1, le=10**9)] | None = None
    initial: Annotated[Whole, Field(ge=1, le=MOST_SAMPLES)] | None = None
    most: Annotated[Whole, Field(ge=1, le=MOST_SAMPLES)] | None = Field(None, alias="max")
    max_per_worker: Annotated[Whole, Field(ge=1, le=MOST_SAMPLES)] | None = None
    lr: Literal["none", "linear", "sqrt", "adascale"] | None = None
    warmup_steps: Annotated[Whole, Field(ge=0, le=10**9)] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> _Batch:
        if sum(kind is not None for kind in (self.total, self.per_node, self.initial)) != 1:
            raise ValueError(BATCH_FORMS.say())
        if self.initial is not None:
            return self._adapts()
        if self.most is not None or self.max_per_worker is not None:
            raise ValueError(BOUNDS_WITHOUT_INITIAL.say())
        if self.lr == "adascale":
            raise ValueError(ADASCALE.say())
        if self.total is not None and (self.lr is not None or self.warmup_steps is not None):
            raise ValueError(RATE_STAYS.say())
        return self

    def _adapts(self) -> _Batch:
        if self.most is None or self.most < (self.initial or 0):
            raise ValueError(ADAPTS_TO.say(most=self.most or "missing", initial=self.initial))
        if self.lr == "none" or self.warmup_steps is not None:
            raise ValueError(ADAPTS_BY.say())
        return self

    def items(self) -> tuple[tuple[str, int | str], ...]:
        """The given keys with their values, sorted, as `TrainerSpec.batch` has them."""
        return tuple(sorted(self.model_dump(by_alias=True, exclude_none=True).items()))


class _Partial(Strict):
    """Partial back-propagation: what parts are shares of, how learning rates follow, and full steps first."""

    by: (
        Literal["time", "modules"] | Annotated[list[Text], Field(min_length=1, max_length=MAX_WORDS)] | None
    ) = None
    lr: Literal["share", "none"] | None = None
    warmup_steps: Annotated[Whole, Field(ge=0, le=10**9)] | None = None
    warmup_epochs: Annotated[Whole, Field(ge=0, le=10**9)] | None = None

    def items(self) -> tuple[tuple[str, int | str | tuple[str, ...]], ...]:
        """The given keys with their values, sorted."""
        given = {**self.model_dump(exclude_none=True), "off": False}
        return tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in given.items()))


class Spec(Strict):
    """A trainer spec as users write it; docs/trainer-spec.md says what each key means."""

    name: Text
    command: Annotated[list[Word], Field(min_length=1, max_length=MAX_WORDS), BeforeValidator(_split)]
    nodes: Sizes | None = None
    gpus: Sizes | None = None
    launcher: Literal["native", "horovod", "torchrun"] = "native"
    work: Work | Literal["until_exit"] = "until_exit"
    curve: Annotated[Pairs, AfterValidator(_possible)] | None = None
    across: Annotated[Pairs, AfterValidator(_possible)] | None = None
    rescale: Rescale | None = None
    scalability: Literal["auto", "given"] = "auto"
    curves: Annotated[
        dict[Text, Annotated[Pairs, AfterValidator(_possible_or_none)]], Field(max_length=MAX_CLASSES)
    ] = Field(default_factory=dict)
    weight: Annotated[float, Field(gt=0, le=MOST, allow_inf_nan=False)] = 1.0
    priority: Annotated[float, Field(gt=0, le=MOST, allow_inf_nan=False)] = 1.0
    workdir: Text = "."
    env: Annotated[dict[str, Lines], Field(max_length=MAX_WORDS)] = Field(default_factory=dict)
    checkpoint: _Checkpoint = _Checkpoint()
    batch: _Batch | None = None
    partial: bool | _Partial | None = None
    stop_signal: Literal["all", "rank_0"] | None = None
    share: Literal["time"] | None = None
    memory_gb: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None

    @field_validator("name")
    @classmethod
    def _usable_in_paths(cls, name: str) -> str:
        if not _NAME.fullmatch(name) or name.isdecimal():
            raise ValueError(NAME.say(name=name))
        return name

    @field_validator("env")
    @classmethod
    def _settable(cls, env: dict[str, str]) -> dict[str, str]:
        for key in env:
            if not _ENV.fullmatch(key) or key.startswith("BFTRAINER_"):
                raise ValueError(NO_VARIABLE.say(key=key))
        return env

    @field_validator("command")
    @classmethod
    def _begins_with_a_program(cls, command: list[str]) -> list[str]:
        if found := _SET.match(command[0]):
            raise ValueError(SETS_VARIABLE.say(begin=found[0]))
        return command

    @model_validator(mode="after")
    def _nodes_or_gpus(self) -> Spec:
        if (self.nodes is None) is (self.gpus is None):
            raise ValueError((NODES_AND_GPUS if self.nodes else NO_NODES).say())
        if self.gpus is not None and "workers" in self.gpus.model_fields_set:
            raise ValueError(GPU_WORKERS.say(workers=self.gpus.workers))
        return self

    @model_validator(mode="after")
    def _something_is_given(self) -> Spec:
        if self.scalability == "given" and self.curve is None:
            raise ValueError(NO_CURVE.say())
        return self

    @model_validator(mode="after")
    def _nodes_train_together(self) -> Spec:
        found = starter(self.command)
        if found and self.sizes.workers not in ("auto", 1):
            raise ValueError(
                STARTED_OFTEN.say(command=self.command[0], program=found, workers=self.sizes.workers)
            )
        if found and self.sizes.most > 1:
            raise ValueError(STARTED_APART.say(command=self.command[0], program=found))
        return self

    @model_validator(mode="after")
    def _restarts_are_for_torchrun(self) -> Spec:
        if self.launcher == "torchrun":
            return self
        for key, given in (
            ("stop_signal", self.stop_signal),
            ("checkpoint.interval_s", self.checkpoint.interval_s),
        ):
            if given is not None:
                raise ValueError(FOR_TORCHRUN.say(key=key, given=given, launcher=self.launcher))
        return self

    @model_validator(mode="after")
    def _progress_is_of_native_scripts(self) -> Spec:
        if isinstance(self.work, Work) and self.work.progress and self.launcher != "native":
            raise ValueError(
                f"work.progress: {self.work.progress}: only elastic.Run (launcher: native) knows what "
                f"samples are worth; with launcher: {self.launcher} give work: {{samples: N}}"
            )
        return self

    @model_validator(mode="after")
    def _batches_are_of_native_scripts(self) -> Spec:
        if self.batch is not None and self.launcher != "native":
            raise ValueError(
                f"batch: scripts under launcher: {self.launcher} choose their batch themselves; with "
                "elastic.Run (launcher: native) the run does. Leave batch out, and set it in the script"
            )
        return self

    @model_validator(mode="after")
    def _parts_are_of_native_scripts(self) -> Spec:
        if self.partial and self.launcher != "native":
            raise ValueError(
                f"partial: scripts under launcher: {self.launcher} average gradients by themselves; with "
                "elastic.Run (launcher: native) the run does. Leave partial out"
            )
        if self.partial and self.batch is not None and self.batch.initial is not None:
            raise ValueError(
                "partial: a batch that adapts measures the noise of full gradients; give batch: {global: N} "
                "or {per_node: N}, or leave partial out"
            )
        return self

    def parts(self) -> tuple[tuple[str, int | str | tuple[str, ...]], ...]:
        """As `TrainerSpec.partial` has it."""
        if self.partial is None or isinstance(self.partial, bool):
            return () if self.partial is None else (("off", not self.partial),)
        return self.partial.items()

    @model_validator(mode="after")
    def _turns_can_be_taken(self) -> Spec:
        if self.share is None:
            if self.memory_gb is not None:
                raise ValueError(
                    f"memory_gb: {self.memory_gb:g} says who can share nodes; add share: time, or leave "
                    "memory_gb out"
                )
            return self
        if self.launcher != "native":
            raise ValueError(
                f"share: time: scripts under launcher: {self.launcher} take no turns on a device, only those "
                "that use elastic.Run do (launcher: native); leave share out"
            )
        for key, given in (("gpus", self.gpus), ("curves", self.curves)):
            if given:
                raise ValueError(
                    f"share: time: trainers take turns on whole nodes that are alike; leave {key} out, or "
                    "share"
                )
        return self

    def workers(self) -> int:
        """Return how many processes run on each node; 0: one for each of its devices. What starts processes
        of its own is started once."""
        if self.sizes.workers == "auto":
            return 1 if starter(self.command) else 0
        return self.sizes.workers

    @model_validator(mode="before")
    @classmethod
    def _branches(cls, data: object) -> object:
        """`curve: {local: ..., across: ...}`: one for GPUs of one node, and one for those of several."""
        if not isinstance(data, dict) or not isinstance(data.get("curve"), dict):
            return data
        branches = data["curve"]
        if branches.keys() != {"local", "across"}:
            raise ValueError(TWO_CURVES.say())
        return {**data, "curve": branches["local"], "across": branches["across"]}

    @model_validator(mode="after")
    def _branches_are_of_gpus(self) -> Spec:
        if self.across is None:
            return self
        if self.gpus is None or self.curve is None:
            raise ValueError(BRANCHES.say())
        if self.scalability != "given":
            raise ValueError(BRANCHES_GIVEN.say())
        return self

    @property
    def sizes(self) -> Sizes:
        """Return how many nodes, or GPUs."""
        found = self.nodes or self.gpus
        if found is None:
            raise AssertionError("checked when the spec was read")
        return found

    def points(self) -> Points | None:
        """The curve as (nodes, samples/s) with whole nodes, checked; None if the spec has none."""
        return None if self.curve is None else curve.make((int(n), rate) for n, rate in self.curve)

    def points_across(self) -> Points | None:
        """The same of GPUs of several nodes, where that is another one."""
        return None if self.across is None else curve.make((int(n), rate) for n, rate in self.across)
