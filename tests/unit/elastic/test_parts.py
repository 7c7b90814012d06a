"""What a script gives its run besides a model and an optimiser: kept, saved, and checked at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from bftrainer import elastic
from bftrainer.elastic.process.channel import Orders
from tests.support.agent_end import agent_of

DATA = torch.arange(10.0).reshape(10, 1)


class Best:
    """The best figure so far, as early stopping keeps it."""

    def __init__(self, value: Any = 0.0) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value = state_dict["value"]


def run(**options: Any) -> elastic.Run:
    model = torch.nn.Linear(1, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3)
    return elastic.Run(model, sgd, DATA, **{"batch_size": 4, **options})


def nets() -> dict[str, torch.nn.Module]:
    return {"G": torch.nn.Linear(1, 1), "D": torch.nn.Linear(1, 1)}


def optimizers(models: dict[str, torch.nn.Module]) -> dict[str, torch.optim.Optimizer]:
    return {name: torch.optim.SGD(model.parameters(), lr=0.1) for name, model in models.items()}


def several(**options: Any) -> elastic.Run:
    models = nets()
    return elastic.Run(models, optimizers(models), DATA, **{"batch_size": 4, **options})


def test_parts_are_saved_and_come_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for samples, before in ((10, 0.0), (20, 3.0)):
        with agent_of(monkeypatch, tmp_path, samples=samples) as (agent, orders):
            monkeypatch.setattr(Orders, "from_environment", lambda orders=orders: orders)
            best = Best()
            trained = run(parts={"best": best})
            agent.say("regroup", generation=samples, members=["a"], leaving=[])
            at_first = None
            for x in trained:
                at_first = best.value if at_first is None else at_first
                trained.backward(trained.model(x).sum())
                trained.step()
                best.value += 1.0
            assert at_first == before
    newest = max(tmp_path.glob("g*.pt"))
    assert torch.load(newest, weights_only=True)["parts"]["best"] == {"value": 6.0}, "the last turn counts"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"best": object()}, "state_dict"),
        ({"best": Best(Path("/"))}, "plain values"),
        ({"model": Best()}, "none of"),
        ({"a.b": Best()}, "a word"),
        ({"best": torch.nn.Identity()}, r"has an empty state_dict\(\)"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_the_start(parts: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        run(parts=parts)


class Warmup(torch.optim.lr_scheduler.LRScheduler):
    """Warms up, then leaves the rate to another scheduler, which it keeps in its state as many do."""

    def __init__(self, optimizer: torch.optim.Optimizer, after: torch.optim.lr_scheduler.LRScheduler) -> None:
        self.after = after
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        return [group["lr"] for group in self.optimizer.param_groups]


class Wrapped(torch.optim.Optimizer):
    """Takes another one's groups, and leaves PyTorch's own __init__ out."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        self.base, self.param_groups, self.state = base, base.param_groups, base.state
        self.defaults = base.defaults


def test_an_optimiser_or_scheduler_that_newcomers_could_not_take_is_refused_at_the_start() -> None:
    model = torch.nn.Linear(1, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3)
    halved = torch.optim.lr_scheduler.StepLR(sgd, 1)
    with pytest.raises(
        TypeError, match=r"scheduler, a Warmup has a state_dict\(\) that is not of plain.*StepLR.*BFT-193"
    ):
        elastic.Run(model, sgd, DATA, batch_size=4, scheduler=Warmup(sgd, halved))
    with pytest.raises(TypeError, match=r"Wrapped.__init__ does not call that of torch.optim.Optimizer"):
        elastic.Run(model, Wrapped(sgd), DATA, batch_size=4)


def test_hooks_come_after_every_step_and_see_its_position() -> None:
    trained, seen = run(epochs=2, accumulate=2), []

    @trained.after_step
    def note() -> None:
        seen.append(trained.position.step)

    for x in trained:
        trained.backward(trained.model(x).sum())
        trained.step()
    assert seen == [1, 2, 3, 4]


def test_each_of_several_optimisers_is_stepped_by_its_name() -> None:
    trained = several(accumulate=2, epochs=1)
    found = []
    for x in trained:
        for which in ("D", "G"):
            before = trained.model[which].weight.clone()  # type: ignore[index,union-attr]
            trained.backward(trained.model["G"](trained.model["D"](x)).sum(), which)  # type: ignore[index]
            taken = trained.step(which, {"loss": 1.0})
            assert taken is not before.equal(trained.model[which].weight)  # type: ignore[index,union-attr]
            found.append((which, taken, trained.position.step))
    first = [("D", False, 0), ("G", False, 0), ("D", True, 0), ("G", True, 0)]
    assert found == [*first, ("D", True, 1), ("G", True, 1)]
    assert trained.position.step == 2


@pytest.mark.parametrize("fails", ["D", "G"])
def test_a_step_of_an_optimiser_that_fails_is_not_taken(fails: str) -> None:
    trained = several(epochs=1)

    def wrong(*_: object) -> None:
        raise ValueError("no step")

    trained._parts.trained.optimizers[fails].register_step_pre_hook(wrong)
    loop = iter(trained)
    x = next(loop)
    with pytest.raises(ValueError, match="no step"):
        for which in ("D", "G"):
            trained.backward(trained.model[which](x).sum(), which)  # type: ignore[index]
            trained.step(which)
    loop.close()  # type: ignore[attr-defined]
    assert trained.position.step == 0, "the batch comes again"


def test_an_optimiser_gets_gradients_of_its_own_loss_only() -> None:
    trained = several(epochs=1)
    models = trained.model
    for x in trained:
        trained.backward(models["G"](models["D"](x)).sum(), "G")  # type: ignore[index]
        assert models["D"].weight.grad is None  # type: ignore[index,union-attr]
        assert models["G"].weight.grad is not None  # type: ignore[index,union-attr]
        trained.step("G")


def test_mistakes_with_several_are_told() -> None:
    models = nets()
    with pytest.raises(ValueError, match="no model of the run"):
        elastic.Run(models["G"], optimizers(models), DATA, batch_size=4)
    with pytest.raises(ValueError, match="no model of the run"):
        elastic.Run(models["G"], torch.optim.SGD(models["D"].parameters(), lr=1.0), DATA, batch_size=4)
    with pytest.raises(ValueError, match=r"Leave ddp out.*BFT-146"):
        several(ddp=True)
    with pytest.raises(ValueError, match=r"Name it as its optimizer: G, D .*BFT-175"):
        several(scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizers(models)["D"], 0.9))
    trained = several()
    for x in trained:
        with pytest.raises(ValueError, match=r'Say run\.step\("G"\), run\.step\("D"\), .*BFT-171'):
            trained.step()
        with pytest.raises(ValueError, match="no optimiser 'E'"):
            trained.backward(x.sum(), "E")
        break
    with pytest.raises(RuntimeError, match=r"without run\.step"):
        list(several())


def test_an_optimiser_that_needs_a_closure_is_refused_with_what_to_do() -> None:
    model = torch.nn.Linear(1, 1)
    with pytest.raises(TypeError, match="launcher: torchrun"):
        elastic.Run(model, torch.optim.LBFGS(model.parameters()), DATA, batch_size=4)


def test_a_sharded_model_says_which_launcher_to_take() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        model = fully_shard(torch.nn.Linear(1, 1), mesh=init_device_mesh("cpu", (1,)))
        with pytest.raises(TypeError, match="launcher: torchrun"):
            elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.1), DATA, batch_size=4)
    finally:
        dist.destroy_process_group()


def test_the_state_is_there_before_the_loop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for samples, before in ((10, 0), (20, 3)):
        given = {"samples": samples, "name": "mine", "folder": str(tmp_path)}
        with agent_of(monkeypatch, tmp_path, **given) as (agent, orders):
            monkeypatch.setattr(Orders, "from_environment", lambda orders=orders: orders)
            trained = run()
            assert (trained.name, trained.id, trained.folder) == ("mine", 1, tmp_path)
            agent.say("regroup", generation=samples, members=["a"], leaving=[])
            assert trained.position.step == before
            assert (trained.rank, trained.size, trained.generation) == (0, 1, samples)
            for x in trained:
                trained.backward(trained.model(x).sum())
                trained.step()
            assert trained.position.samples == samples


def test_hooks_after_epochs_and_an_end_before_the_work_is_done() -> None:
    trained, epochs = run(epochs=9), []

    @trained.after_epoch
    def note() -> None:
        epochs.append(trained.position.epoch)
        if len(epochs) == 2:
            trained.stop()

    for x in trained:
        trained.backward(trained.model(x).sum())
        trained.step()
    assert epochs == [1, 2]
    assert trained.position.samples == 20


def test_by_hand_a_run_is_called_after_its_script() -> None:
    trained = run()
    assert trained.name and trained.id == 0 and trained.folder == Path.cwd()
