"""What a script keeps in attributes, and changes, is named: no checkpoint has it."""

from __future__ import annotations

import copy
import importlib
import sys
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

from bftrainer.elastic import own_state
from bftrainer.elastic.own_objects import by_name, of_optimizers, own_objects
from bftrainer.elastic.own_state import OwnState, tell_of_lost


class Meter:
    """Averages, as many scripts have it."""

    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0


class Script:
    """Keeps this and that."""

    def __init__(self) -> None:
        self.net = torch.nn.Linear(1, 1)
        sgd = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.seen, self.rate, self.nan, self.name, self.flag = 0, 0.5, float("nan"), "a", False
        self.average = copy.deepcopy(self.net)
        self.shadow = {name: p.detach().clone() for name, p in self.net.named_parameters()}
        self.history: list[float] = []
        self.window: deque[float] = deque([0.0] * 20, maxlen=20)
        self.queue, self.meter = torch.zeros(4), Meter()
        self.schedule = torch.optim.lr_scheduler.StepLR(sgd, 1)
        self.itself = self


def grown(script: Script) -> None:
    """As in a step."""
    script.seen += 1
    script.history.append(0.5)
    script.window.append(1.0)
    script.meter.sum += 2.0
    script.schedule.last_epoch += 1
    with torch.no_grad():
        script.queue[0] += 1
        script.average.weight += 1
        script.shadow["bias"] += 1


def test_what_has_changed_is_named_once() -> None:
    script = Script()
    own = OwnState(script)
    assert own.lost() == []
    script.name, script.flag = "b", True
    assert own.lost() == [], "texts and flags are not followed"
    grown(script)
    assert own.lost() == [
        *("average", "history", "itself", "meter", "queue", "schedule", "seen", "shadow", "window")
    ]
    grown(script)
    assert own.lost() == []


def test_what_is_saved_or_left_out_is_not_named() -> None:
    script = Script()
    own = OwnState(script, but={"seen", "history", "itself"}, saved=[script.schedule])
    grown(script)
    assert own.lost() == ["average", "meter", "queue", "shadow", "window"]


def test_of_a_modules_layers_numbers_count_and_the_best_of_a_metric() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    model: Any = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1))
    model.best, model.accuracy = torchmetrics.MaxMetric(), torchmetrics.MeanMetric()
    model.kept = torchmetrics.MaxMetric()
    model.kept.persistent(True)
    own = OwnState(model)
    for metric in (model.best, model.accuracy, model.kept):
        metric.update(1.0)
    model[0].calls = 0
    model.train(mode=False)
    with torch.no_grad():
        model[0].weight += 1
        model[1].running_mean += 1
    assert own.lost() == ["best.max_value"], "the rest is in checkpoints, or begins anew with each epoch"


def test_large_tables_and_models_are_looked_at_all_over() -> None:
    class Keeps:
        """A figure of each sample, and an average whose first layers are frozen."""

        def __init__(self) -> None:
            self.table, self.losses = dict.fromkeys(range(1000), 0.0), [0.0] * 1000
            self.average = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(20)))

    keeps = Keeps()
    own = OwnState(keeps)
    with torch.no_grad():
        keeps.average[-1].weight += 1.0  # type: ignore[operator]
    keeps.table |= dict.fromkeys(range(400, 600), 1.0)
    keeps.losses[400:600] = [1.0] * 200
    assert own.lost() == ["average", "losses", "table"]


def test_it_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(own_state, "note_warning", told.append)
    script = Script()
    states = {"Script": OwnState(script)}
    tell_of_lost(states, "save it")
    assert not told
    script.seen = 3
    tell_of_lost(states, "save it")
    assert told == [
        "the checkpoint lacks what Script changes while it trains: itself, seen. It begins anew with every "
        "start: save it"
    ]


class Lookahead(torch.optim.SGD):
    """As it is often copied: slow weights and a count are attributes."""

    def __init__(self, params: Any, carries: bool) -> None:
        super().__init__(params, lr=0.1)
        self.count, self.carries = 0, carries
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    def state_dict(self) -> dict[str, Any]:
        """As SGD's, or with what it keeps."""
        more = {"count": self.count, "slow": self.slow} if self.carries else {}
        return {**super().state_dict(), **more}

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Count, and change slow weights."""
        super().step(closure)
        self.count += 1
        for each in self.slow:
            each.add_(1.0)


@pytest.mark.parametrize("carries", [False, True])
def test_what_an_optimizer_keeps_beside_its_state_dict_is_named(carries: bool) -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = Lookahead(model.parameters(), carries)
    found = by_name(own_objects(None, [optimizer], [], []))
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    assert found["Lookahead"].lost() == ([] if carries else ["count", "slow"])


def test_what_changes_in_data_sets_and_collators_is_named() -> None:
    class Weighted(torch.utils.data.Dataset[Any]):
        def __init__(self) -> None:
            self.weight, self.at, self.passes = torch.ones(200), 0, 0

        def set_epoch(self, epoch: int) -> None:
            self.at = epoch
            self.passes += 1

    class Collator:
        mask = 0.5

        def __init__(self) -> None:
            self.share = 0.5

    data, plain, collator = Weighted(), torch.utils.data.TensorDataset(torch.ones(99)), Collator()
    subset = torch.utils.data.Subset(data, [0, 1])
    both = torch.utils.data.ConcatDataset([subset, plain])
    loader: Any = type("Loader", (), {"dataset": both, "collate_fn": collator})()
    found = by_name(own_objects(loader, [], [], []))
    assert not any(state.lost() for state in found.values())
    data.weight[100] = 0.5
    data.set_epoch(1)
    plain.tensors[0].mul_(2.0)
    collator.share = 0.25
    subset.indices = [1, 2]
    lost = {name: state.lost() for name, state in found.items()}
    assert {name: names for name, names in lost.items() if names} == {
        "Weighted": ["passes", "weight"],
        "TensorDataset": ["tensors"],
        "Collator": ["share"],
        "Subset": ["indices"],
    }


def test_a_scripts_variables_are_followed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script: Any = type(own_state)("__main__")
    script.__file__ = str(tmp_path / "train.py")
    model = torch.nn.Linear(1, 1)
    script.level, script.model, script.torch = 1, model, torch
    script.draws = numpy.random.default_rng(0)
    monkeypatch.setitem(sys.modules, "__main__", script)
    found = by_name(own_objects(None, [], [], [model, *model.parameters()]))
    with torch.no_grad():
        model.weight.add_(1.0)
    assert found["train.py"].lost() == []
    script.level += 1
    script.draws.random()
    assert found["train.py"].lost() == ["draws", "level"]


@pytest.fixture
def script(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script with variables."""
    made: Any = type(own_state)("__main__")
    made.__file__ = str(tmp_path / "train.py")
    monkeypatch.setitem(sys.modules, "__main__", made)
    return made


def test_a_scheduler_that_hugging_face_keeps_is_not_named(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    resumed = importlib.import_module("bftrainer.elastic.huggingface_resumed")
    lr = torch.optim.lr_scheduler
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    script.parts = [lr.LinearLR(optimizer), lr.StepLR(optimizer, 2)]
    script.warm, script.after = script.parts
    script.sched = lr.SequentialLR(optimizer, script.parts, [1])
    script.other = lr.StepLR(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), 2)
    trainer = SimpleNamespace(
        callback_handler=SimpleNamespace(callbacks=[]), data_collator=None, lr_scheduler=script.sched
    )
    monkeypatch.setattr(resumed, "trainers_of", lambda *_: [trainer])
    found = resumed.own_states(None, None, None, optimizer)
    optimizer.step()
    for scheduler in (script.sched, script.sched, script.other):
        scheduler.step()
    assert lost_of(found) == {"train.py": ["other"]}


def test_a_data_module_with_a_state_that_lightning_keeps_is_not_named(script: Any) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    counts = importlib.import_module("bftrainer.elastic.lightning_counts")

    class Counts(lightning.LightningDataModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.seen = 0

    class Keeps(Counts):
        def state_dict(self) -> dict[str, Any]:
            return {"seen": self.seen}

    for kind, named in ((Keeps, {}), (Counts, {"Counts": ["seen"]})):
        script.d = kind()
        trainer = SimpleNamespace(callbacks=[], datamodule=script.d)
        found = counts.own_states(trainer, lightning.LightningModule())
        script.d.seen += 1
        assert lost_of(found) == named, kind


class Samples(torch.utils.data.Dataset[Any]):
    """Keeps how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return 4


class Order:
    """A sampler with a state of its own."""

    def __init__(self) -> None:
        self.level, self.epoch = 0, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def collate(self, samples: list[Any]) -> list[Any]:
        return samples


def lost_of(states: Any) -> dict[str, list[str]]:
    return {name: names for name, state in states.items() if (names := state.lost())}


def test_of_several_objects_of_a_class_each_is_followed_by_its_own_name() -> None:
    some = [Samples() for _ in range(3)]
    both = torch.utils.data.ConcatDataset([*some, some[0]])
    loader: Any = type("Loader", (), {"dataset": both})()
    found = by_name(own_objects(loader, [], [], []), {id(some[2]): "eval"})
    some[0].asked += 1
    some[2].asked += 1
    assert lost_of(found) == {"Samples #1": ["asked"], "Samples 'eval'": ["asked"]}
    model = torch.nn.Linear(1, 1)
    two = [Lookahead(model.parameters(), carries=False) for _ in "GD"]
    found = by_name(of_optimizers(two), {id(one): name for one, name in zip(two, "GD", strict=True)})
    two[0].count += 1
    assert lost_of(found) == {"Lookahead 'G'": ["count"]}


def test_what_samplers_keep_and_the_object_that_collates_is_named() -> None:
    sampler, batches, collator = Order(), Order(), Order()
    batches.sampler = sampler  # type: ignore[attr-defined]
    loader: Any = type("Loader", (), {"batch_sampler": batches, "collate_fn": collator.collate})()
    found = by_name(own_objects(loader, [], [], []))
    sampler.level, collator.level = 1, 1
    for each in (sampler, batches):
        each.set_epoch(1)
    assert lost_of(found) == {"Order #2": ["level"], "Order #3": ["level"]}


def test_files_of_one_name_are_told_apart(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script, *parts = (type(own_state)(name) for name in ("__main__", "a.parts", "b.parts"))
    script.__file__ = str(tmp_path / "train.py")
    monkeypatch.setitem(sys.modules, "__main__", script)
    for part in parts:
        part.__file__ = str(tmp_path / part.__name__.replace(".", "/")) + ".py"
        part.level = 0  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, part.__name__, part)
    script.train, script.old = Samples(), Samples()  # type: ignore[attr-defined]
    both = torch.utils.data.ConcatDataset([script.train, script.old])  # type: ignore[attr-defined]
    loader: Any = type("Loader", (), {"dataset": both})()
    found = by_name(own_objects(loader, [], [], []))
    for part in parts:
        part.level = 1  # type: ignore[attr-defined]
    script.train.asked = 1
    assert lost_of(found) == {"Samples 'train'": ["asked"], "a/parts.py": ["level"], "b/parts.py": ["level"]}


def test_what_transformers_notes_in_a_config_is_no_change_of_the_scripts(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")

    class NetConfig(transformers.PretrainedConfig):  # type: ignore[misc,name-defined]
        model_type = "net"
        level = 0

    class Net(transformers.PreTrainedModel):  # type: ignore[misc,name-defined]
        config_class = NetConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.layer = torch.nn.Linear(1, 1)
            self.post_init()

    net = Net(NetConfig())
    net.config.level = 1
    own = OwnState(net)
    net.save_pretrained(tmp_path)
    assert own.lost() == []
    net.config.level = 2
    assert own.lost() == ["config"]
