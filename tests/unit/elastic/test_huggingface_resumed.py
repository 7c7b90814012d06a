"""Hugging Face's Trainer goes on in a new process as if there had been none."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from bftrainer.elastic.attach import checkpoints
from bftrainer.elastic.attach.job import Job

transformers = pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate")
safetensors_torch = pytest.importorskip("safetensors.torch")
ExportableState = importlib.import_module("transformers.trainer_callback").ExportableState
resumed = importlib.import_module("bftrainer.elastic.frameworks.huggingface.resume")
huggingface = importlib.import_module("bftrainer.elastic.frameworks.huggingface.callback")


class NeverBetter(torch.nn.Module):
    """Its loss does not change."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return it."""
        return {"loss": 1.0 + 0.0 * self.weight.sum()}


def process(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    leave_after: int | None,
    every: str,
    kind: Any = None,
    also: Sequence[Any] = (),
    stream: Any = None,
    steps: int = 8,
) -> int:
    """Train as one process does, which is told to leave after a step. Returns how far it came."""
    job = Job(None, folder)
    monkeypatch.setattr(huggingface, "attach", lambda _: job)
    monkeypatch.setattr(job, "listen_for_sigterm", lambda: None)
    elastic = huggingface.ElasticCallback()
    data = [{"x": torch.ones(1), "labels": torch.ones(1)}] * 4
    args = transformers.TrainingArguments(
        output_dir=elastic.output_dir,
        **elastic.batch(2),
        num_train_epochs=10,
        eval_on_start=True,
        eval_strategy=every,
        eval_steps=1,
        save_strategy=every,
        save_steps=1,
        load_best_model_at_end=True,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        max_steps=-1 if stream is None and steps == 8 else steps,
    )
    patience = transformers.EarlyStoppingCallback(early_stopping_patience=3)
    trainer = (kind or transformers.Trainer)(
        NeverBetter(),
        args,
        train_dataset=stream or data,
        eval_dataset=data,
        callbacks=[patience, elastic, *also],
    )
    leaves = leave_after or 1000
    for asked in ("should_stop", "should_save"):
        monkeypatch.setattr(job, asked, lambda: trainer.state.global_step >= leaves)
    try:
        trainer.train(resume_from_checkpoint=elastic.checkpoint)
    except SystemExit:
        assert leave_after is not None
    return int(trainer.state.global_step)


class Weighted(transformers.Trainer):  # type: ignore[misc,name-defined]  # need not be installed
    """Chooses its samples by itself."""

    def _get_train_sampler(self, *_: Any) -> Any:
        return torch.utils.data.WeightedRandomSampler([1.0, 2.0], 4)


def test_an_order_that_every_process_draws_anew_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    with pytest.raises(ValueError, match="WeightedRandomSampler has no set_epoch"):
        process(tmp_path, monkeypatch, None, "steps", kind=Weighted)


def test_batches_of_an_evaluation_are_divided_by_their_own_items_and_steps_by_those_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[tuple[bool, bool]] = set()

    class Looks(transformers.Trainer):  # type: ignore[misc,name-defined]  # need not be installed
        def compute_loss(self, model: Any, *given: Any, **options: Any) -> Any:
            seen.add((model.training, self.args.average_tokens_across_devices))
            return super().compute_loss(model, *given, **options)

    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    process(tmp_path, monkeypatch, None, "steps", kind=Looks)
    assert seen == {(True, True), (False, False)}


class Counts(transformers.TrainerCallback, ExportableState):  # type: ignore[misc,name-defined]
    """Keeps its count among the arguments of its constructor, and what `own` is nowhere."""

    def __init__(self, count: int = 0, own: str = "") -> None:
        self.count, self.own = count, own

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.count += 1

    def state(self) -> dict[str, Any]:
        return {"args": {"count": self.count}, "attributes": {}}


class CountsElsewhere(Counts):
    """Keeps it in an attribute of another name."""

    @property
    def count(self) -> int:  # type: ignore[override]
        return self.within

    @count.setter
    def count(self, value: int) -> None:
        self.within = value


@pytest.mark.parametrize(("kind", "own"), [(Counts, "the script's"), (CountsElsewhere, "")])
def test_what_a_callback_keeps_among_the_arguments_of_its_constructor_goes_on(
    kind: type[Any], own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    kept = []
    for leave_after in (2, 3, None):
        monkeypatch.setattr(checkpoints, "_begun", set[Any]())
        kept.append(kind(own="the script's"))
        process(tmp_path, monkeypatch, leave_after, "steps", also=[kept[-1]])
    assert [each.count for each in kept] == [2, 3, 4]
    assert kept[-1].own == own


@pytest.mark.parametrize(("every", "stops_at"), [("steps", 4), ("epoch", 8)])
@pytest.mark.parametrize("leave_after", [None, 2, 3])
def test_early_stopping_keeps_its_patience(
    leave_after: int | None, every: str, stops_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    if leave_after is not None:
        assert process(tmp_path, monkeypatch, leave_after, every) == leave_after
    assert process(tmp_path, monkeypatch, None, every) == stops_at, (
        "the first after step 0, and three no better"
    )


@pytest.mark.parametrize(("every", "stops_at"), [("steps", 3), ("epoch", 6)])
@pytest.mark.parametrize("leave_after", [None, 3])
def test_a_training_that_was_stopped_stays_so_where_the_code_after_it_is_repeated(
    leave_after: int | None, every: str, stops_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its node is wanted at that moment. With more steps it goes on."""
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    came_to = []
    for _ in range(3):
        stops, is_asked = Stops(every, stops_at), not came_to
        came_to += [process(tmp_path, monkeypatch, leave_after if is_asked else None, every, also=[stops])]
    assert came_to[-2:] == [stops_at, stops_at] and not stops.evaluated
    state = transformers.TrainerState.load_from_json(
        str(tmp_path / f"checkpoint-{stops_at}" / "trainer_state.json")
    )
    assert state.epoch == stops_at / 2
    assert process(tmp_path, monkeypatch, None, every, also=[Stops(every, stops_at)], steps=9) > stops_at


class Stops(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
    """Stops the training at an evaluation, once."""

    def __init__(self, every: str, at: int) -> None:
        self.at, self.evaluated = at, 0

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Stop."""
        self.evaluated += state.global_step >= self.at
        control.should_training_stop = state.global_step == self.at


class Begins(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
    """Sets a weight when training begins."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Set it."""
        torch.nn.init.ones_(given["model"].weight)


def test_weights_set_when_training_begins_are_refused_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    assert process(tmp_path, monkeypatch, 2, "steps", also=[Begins()]) == 2
    weights = next(tmp_path.glob("checkpoint-2/model*.safetensors"))
    tensors = safetensors_torch.load_file(weights)
    safetensors_torch.save_file({"weight": tensors["weight"] - 0.5}, weights)  # as if it had been trained
    with pytest.raises(ValueError, match="weight is not what the checkpoint has: on_train_begin"):
        process(tmp_path, monkeypatch, None, "steps", also=[Begins()])


class Stream(torch.utils.data.IterableDataset[Any]):
    """Numbers in an order of its own."""

    def __init__(self, order: str) -> None:
        self.order, self.passes = order, 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        numbers = list(range(100))
        self.passes += 1
        if self.order == "global":
            random.shuffle(numbers)
        elif self.order == "count":
            random.Random(self.passes).shuffle(numbers)
        return ({"x": torch.ones(1) * one, "labels": torch.ones(1)} for one in numbers)


class Shuffled(Stream):
    """Follows the Trainer's epochs."""

    def set_epoch(self, epoch: int) -> None:
        """Take over the epoch."""


class Itself(Stream):
    """Is its own iterator, which is used up by reading."""

    def __init__(self) -> None:
        super().__init__("fixed")
        self.left = 100

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self  # type: ignore[return-value]

    def __next__(self) -> dict[str, Any]:
        self.left -= 1
        return {"x": torch.tensor([self.left])}


@pytest.mark.parametrize(
    ("data", "differs"),
    [
        (Stream("fixed"), False),
        (Stream("global"), True),
        (Stream("count"), True),
        (Shuffled("count"), False),
        ([{"x": torch.zeros(1)}] * 3, False),
        (Itself(), False),
    ],
)
def test_a_stream_in_another_order_each_time_is_told_of(data: Any, differs: bool) -> None:
    before = random.getstate(), torch.random.get_rng_state()
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    assert resumed.order_differs(accelerate.Accelerator(cpu=True).prepare(loader)) == differs
    assert random.getstate() == before[0]
    assert torch.equal(torch.random.get_rng_state(), before[1])


@pytest.mark.parametrize("kind", [Stream, Shuffled])
def test_a_stream_goes_on_where_it_was(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    seen: list[float] = []
    monkeypatch.setattr(NeverBetter, "forward", noting(seen))
    assert process(tmp_path, monkeypatch, 2, "steps", stream=kind("fixed")) == 2
    assert process(tmp_path, monkeypatch, None, "steps", stream=kind("fixed")) == 4, "no better than at first"
    assert seen == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def noting(seen: list[float]) -> Any:
    """A forward pass that notes what it sees in training."""
    forward = NeverBetter.forward

    def noted(model: NeverBetter, x: torch.Tensor, labels: torch.Tensor) -> Any:
        if model.training:
            seen.extend(x[:, 0].tolist())
        return forward(model, x, labels)

    return noted


class Anneals(transformers.Trainer):  # type: ignore[misc,name-defined]
    """Lets a term of the loss grow with the steps."""

    weight = 0.0

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.weight = 0.0
        self.constant = 3

    def compute_loss(self, *args: Any, **given: Any) -> Any:
        """Count."""
        self.weight += 0.01
        return super().compute_loss(*args, **given)


class Counts(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
    """Counts steps."""

    def __init__(self) -> None:
        self.steps = 0

    def on_step_end(self, *_: Any, **given: Any) -> None:
        """Count."""
        self.steps += 1


class Kept(Counts, importlib.import_module("transformers.trainer_callback").ExportableState):  # type: ignore[misc]
    """Is in checkpoints."""

    def state(self) -> dict[str, Any]:
        """Say what."""
        return {"args": {}, "attributes": {"steps": self.steps}}


def test_what_callbacks_export_goes_on_in_the_scripts_own_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several of one class, too, each with its own numbers."""
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    process(tmp_path, monkeypatch, 2, "steps", also=[Kept(), Kept()])
    first, second = Kept(), Kept()
    second.steps = 100  # it is restored
    assert process(tmp_path, monkeypatch, None, "steps", also=[first, second]) == 4
    assert (first.steps, second.steps) == (4, 4)


class Renames(transformers.Trainer):  # type: ignore[misc,name-defined]
    """Saves one of two weights under another name, as some versions of transformers do for some models."""

    def __init__(self, model: Any, *args: Any, **given: Any) -> None:
        model.head = torch.nn.Parameter(torch.zeros(1))
        super().__init__(model, *args, **given)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        assert output_dir is not None
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        saved = {"weight": torch.zeros(1), "embed_out": torch.zeros(1)}
        safetensors_torch.save_file(saved, Path(output_dir, "model.safetensors"))


def test_a_checkpoint_with_other_names_than_the_models_is_refused_as_soon_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    with pytest.raises(ValueError, match=r"lacks 1 of 2 weights .* such as head"):
        process(tmp_path, monkeypatch, None, "steps", kind=Renames)


class Grows(transformers.Trainer):  # type: ignore[misc,name-defined]  # need not be installed
    """Has another loss at every step, and logs every third."""

    said: ClassVar[dict[str, float]] = {}

    def __init__(self, model: Any, args: Any, **given: Any) -> None:
        args.logging_steps = 3
        super().__init__(model, args, **given)

    def training_step(self, *given: Any, **options: Any) -> Any:
        return super().training_step(*given, **options) + self.state.global_step

    def log(self, logs: dict[str, float], *given: Any) -> None:
        found = {name: logs[name] for name in ("loss", "train_loss") if name in logs}
        self.said.update({f"{name} at {self.state.global_step}": value for name, value in found.items()})
        super().log(logs, *given)


@pytest.mark.parametrize("leaves", [(), (2,), (1, 3, 5), (7, 8)])
def test_a_logged_loss_is_the_mean_of_all_steps_since_the_last_line(
    leaves: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps from 1 to 8 have losses from 1 to 8. The training's own figure is the mean of them all, also
    where the process begins once more after its end."""
    monkeypatch.setattr(Grows, "said", {})
    for leave_after in (*leaves, None, None):
        monkeypatch.setattr(checkpoints, "_begun", set[Any]())
        process(tmp_path, monkeypatch, leave_after, "epoch", kind=Grows)
        assert Grows.said.items() <= {"loss at 3": 2.0, "loss at 6": 5.0, "train_loss at 8": 4.5}.items()
    assert len(Grows.said) == 3
