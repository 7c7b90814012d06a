"""A trainer that goes on from an earlier one has its checkpoints; one that begins anew is told of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bftrainer.api.callers import Caller
from bftrainer.api.transport.admission import BusyError
from bftrainer.errors import BftrainerError
from bftrainer.model.events import TrainerCancelled
from tests.support.fed_daemon import FedDaemon
from tests.support.nodes_world import run

ANN, BOB, OPS = Caller("ann", 1001), Caller("bob", 1002), Caller("ops", 1003, admin=True)
SPEC = "name: {name}\ncommand: [run]\nnodes: {{max: 4}}\n"


class Desk(FedDaemon):
    """A daemon to which callers submit."""

    async def order(
        self, caller: Caller, name: str = "a", resume: str | None = None, more: str = ""
    ) -> dict[str, Any]:
        """Submit a trainer; return what the caller is told."""
        text = SPEC.format(name=name) + more
        said = await self.daemon.service.submit(caller, text, f"{name}.yaml", "/home", resume)
        await self.take()
        return dict(said)

    async def end(self, trainer: int) -> None:
        """End a trainer, stored and all."""
        await self.take(TrainerCancelled(time=5.0, trainer=trainer))
        while (stored := self.store.trainer(trainer)) is None or not stored.status.final:
            await asyncio.sleep(0.01)

    async def folder(self, caller: Caller, trainer: int) -> str:
        """The folder of a trainer's checkpoints."""
        return (await self.daemon.service.show(caller, str(trainer)))["checkpoint_dir"]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()
    made.daemon.lanes.close()


def test_a_trainer_goes_on_from_the_checkpoints_of_one_that_has_ended(desk: Desk) -> None:
    async def scenario() -> None:
        first = (await desk.order(ANN))["id"]
        await desk.end(first)
        own = await desk.folder(ANN, first)
        second = await desk.order(ANN, resume="a")
        assert second["earlier"]["goes_on"] and second["earlier"]["checkpoint_dir"] == own
        assert await desk.folder(ANN, second["id"]) == own
        await desk.end(second["id"])
        third = await desk.order(ANN, name="b", resume=str(second["id"]))
        assert await desk.folder(ANN, third["id"]) == own, "by number, under another name"

    run(scenario)


def test_one_that_begins_anew_is_told_of_the_last_of_its_name(desk: Desk) -> None:
    async def scenario() -> None:
        first = await desk.order(ANN)
        assert first["earlier"] is None
        await desk.end(first["id"])
        assert (await desk.order(BOB))["earlier"] is None, "Ann's is nobody else's business"
        second = await desk.order(ANN)
        told, own = second["earlier"], await desk.folder(ANN, first["id"])
        assert (told["id"], told["status"], told["checkpoint_dir"]) == (first["id"], "cancelled", own)
        assert not told["goes_on"] and await desk.folder(ANN, second["id"]) != own
        await desk.end(second["id"])
        third = await desk.order(ANN, more="checkpoint: {dir: /c}\n")
        assert not third["earlier"]["goes_on"]
        await desk.end(third["id"])
        assert (await desk.order(ANN, more="checkpoint: {dir: /c}\n"))["earlier"]["goes_on"]

    run(scenario)


def test_a_busy_store_does_not_keep_a_trainer_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        await desk.end((await desk.order(ANN))["id"])

        async def busy(*_: object) -> None:
            raise BusyError("16 requests wait", 503)

        monkeypatch.setattr(desk.daemon.lanes.store, "run", busy)
        assert (await desk.order(ANN))["earlier"] is None
        with pytest.raises(BusyError):
            await desk.order(ANN, name="b", resume="a")

    run(scenario)


@pytest.mark.parametrize(
    ("caller", "resume", "more", "refusal"),
    [
        (ANN, "a", "", "trainer 1 \\(a\\) has not ended, .*. Cancel it first: bftrainer cancel 1"),
        (ANN, "none", "", "no trainer 'none'"),
        (BOB, "1", "", "no trainer '1'"),
        (OPS, "1", "", "no trainer '1'"),
        (
            ANN,
            "over",
            "checkpoint: {dir: /elsewhere}\n",
            "checkpoint.dir: /elsewhere: .* Leave",
        ),
        (ANN, "taken", "", "trainer 4 \\(heir\\) has not ended, and uses these checkpoints"),
        (ANN, "leaving", "", "workers of trainer 5 \\(leaving\\) still write what they have"),
    ],
)
def test_what_cannot_be_gone_on_from_is_refused(
    desk: Desk, caller: Caller, resume: str, more: str, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        for name in ("a", "over", "taken"):
            await desk.order(ANN, name)
        for ended in (2, 3):
            await desk.end(ended)
        await desk.order(ANN, "heir", resume="taken")
        await desk.order(ANN, "leaving")
        await desk.end(5)
        launcher = desk.daemon.launcher
        monkeypatch.setattr(type(launcher), "workers", lambda _, id_: {"n1": "leaving"} if id_ == 5 else {})
        with pytest.raises(BftrainerError, match=refusal):
            await desk.order(caller, "new", resume=resume, more=more)
        assert desk.store.latest_named("new") == {}

    run(scenario)
