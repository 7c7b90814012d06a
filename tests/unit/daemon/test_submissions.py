"""What one user, and all together, may submit; and that reading specs delays nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bftrainer.api.callers import Caller
from bftrainer.api.errors import STATUS_OF, FullError, TooManyError
from bftrainer.daemon.answers import submissions
from bftrainer.daemon.answers.submissions import Submissions
from bftrainer.daemon.index import Index
from bftrainer.errors import BftrainerError
from bftrainer.model.trainer import TrainerSpec
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.sources import load
from bftrainer.spec.located_yaml import SpecError
from bftrainer.spec.parse import parse
from bftrainer.telemetry.telemetry import Telemetry

ANN, BOB, OPS = Caller("ann", 1001), Caller("bob", 1002), Caller("ops", 1003, admin=True)
SPEC = "name: a\ncommand: [run]\nnodes: {max: 4}\n"


class Desk:
    """Submissions of a site whose trainers and clock the test moves."""

    def __init__(self, **changes: Any) -> None:
        self.now, self.telemetry = 0.0, Telemetry()
        self.index = Index()
        own = LiveSettings(load(changes, environ={"XDG_CONFIG_HOME": "/nowhere"}))
        self.submissions = Submissions(own, self.telemetry, self.index.count, lambda: self.now)

    async def submit(
        self, caller: Caller, text: str = SPEC, name: str = "a.yaml", base: str = "/home"
    ) -> str:
        """The accepted trainer's user, or why it was not."""
        try:
            with self.submissions.place(caller):
                return (await self.submissions.read(caller, text, name, base)).user
        except BftrainerError as error:
            return f"{type(error).__name__}: {error}"

    def holds(self, **users: int) -> None:
        """So many trainers of each user have not ended."""
        self.index.load((), {})
        for number, user in enumerate((u for u, n in users.items() for _ in range(n)), start=1):
            spec = TrainerSpec(name=f"t{number}", command=("run",), n_min=1, n_max=1, user=user)
            self.index.submitted(number, spec, 0.0)

    @property
    def hit(self) -> list[str]:
        return [hits.text for hits in self.telemetry.bounds.last_hour()]


@pytest.fixture
def desk() -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(**changes: Any) -> Desk:
        made.append(Desk(**changes))
        return made[-1]

    yield make
    for one in made:
        one.submissions.close()


def test_a_spec_becomes_its_callers(desk: Callable[..., Desk]) -> None:
    assert asyncio.run(desk().submit(ANN)) == "ann"


def test_a_launcher_that_the_daemon_cannot_serve_is_refused(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "find_spec", lambda package: None)
    said = asyncio.run(desk().submit(ANN, f"{SPEC}launcher: torchrun\n"))
    assert "launcher: torchrun: the daemon's Python has no torch. Ask its admin" in said
    assert asyncio.run(desk().submit(ANN)) == "ann", "native needs nothing there"


def test_an_hour_of_submitting_is_bounded_by_the_minute(desk: Callable[..., Desk]) -> None:
    async def story() -> None:
        own = desk(max_submits_per_minute=3)
        assert [await own.submit(ANN) for _ in range(3)] == ["ann"] * 3
        said = await own.submit(ANN)
        assert said.startswith(
            "TooManyError: you have sent more than 3 specs and orders in a minute, refused ones included. "
            "Try again in 20 s (max_submits_per_minute)"
        )
        assert await own.submit(BOB) == "bob"
        assert [await own.submit(OPS) for _ in range(9)] == ["ops"] * 9
        own.now = 20.0
        assert [(await own.submit(ANN))[:3] for _ in range(2)] == ["ann", "Too"]
        own.now = 200.0
        assert [(await own.submit(ANN))[:3] for _ in range(4)] == ["ann"] * 3 + ["Too"]
        assert own.hit == ["max_submits_per_minute: 3 times, most by ann"]

    asyncio.run(story())


def test_orders_count_as_specs_do(desk: Callable[..., Desk]) -> None:
    own = desk(max_submits_per_minute=2)
    for _ in range(2):
        own.submissions.check_priority(ANN, 0.5)
    with pytest.raises(TooManyError, match="more than 2 specs and orders in a minute"):
        own.submissions.check_priority(ANN, 0.5)
    own.submissions.check_priority(BOB, 0.5)


def test_wrong_specs_count_as_others_do(desk: Callable[..., Desk]) -> None:
    async def story() -> None:
        own = desk(max_submits_per_minute=2)
        assert [(await own.submit(ANN, "[]"))[:9] for _ in range(3)] == ["SpecError"] * 2 + ["TooManyEr"]

    asyncio.run(story())


def test_trainers_that_have_not_ended_are_bounded_for_each_user_and_for_all(
    desk: Callable[..., Desk],
) -> None:
    async def story() -> None:
        own = desk(max_trainers_per_user=3, max_trainers=7)
        own.holds(ann=3, bob=2)
        said = await own.submit(ANN)
        assert said.startswith(
            "TooManyError: 3 of your trainers have not ended, the most for one user (max_trainers_per_user). "
        )
        assert await own.submit(BOB) == "bob"
        own.holds(ann=3, bob=3)
        assert (await own.submit(BOB)).startswith("TooManyError: 3 of your")
        assert await own.submit(OPS) == "ops"
        own.holds(ann=3, bob=3, ops=1)
        said = await own.submit(OPS)
        assert said.startswith("FullError: 7 trainers have not ended, the most here (max_trainers). ")
        own.now = 1e6  # however long that takes
        assert (await own.submit(ANN)).startswith("FullError: 7 trainers")
        own.holds(ann=2)
        assert await own.submit(ANN) == "ann"

    asyncio.run(story())


def test_specs_that_come_at_once_share_the_places_that_are_left(desk: Callable[..., Desk]) -> None:
    async def story() -> None:
        own = desk(max_trainers_per_user=3)
        own.holds(ann=2)
        found = await asyncio.gather(*(own.submit(ANN) for _ in range(5)))
        assert [said[:7] for said in found] == ["ann"] + ["TooMany"] * 4
        assert await own.submit(ANN) == "ann", "a place is free again when its spec is done"

    asyncio.run(story())


def test_a_site_caps_what_users_claim_for_themselves(desk: Callable[..., Desk]) -> None:
    async def story() -> None:
        own = desk(max_weight=2)
        assert await own.submit(ANN, SPEC + "priority: 1\nweight: 2\n") == "ann"
        assert await own.submit(ANN, SPEC + "priority: 0.5\n") == "ann"
        assert (await own.submit(ANN, SPEC + "priority: 1.5\n")).startswith(
            "BftrainerError: priority: 1.5 is above 1, the most here. Lower it, or ask an admin "
            "(max_priority)"
        )
        assert (await own.submit(ANN, SPEC + "weight: 3\n")).startswith(
            "BftrainerError: weight: 3 is above 2, the most here. Lower it, or ask an admin (max_weight)"
        )
        assert await own.submit(OPS, SPEC + "priority: 99\nweight: 99\n") == "ops"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base": "home"}, "base: 'home' is not the whole path of a folder"),
        ({"base": "/a\x1b[2J"}, "base: contains the control character '\\x1b' at position 2: remove it"),
        ({"name": "a\nb"}, "name: contains the control character '\\n' at position 1: remove it"),
        ({"name": "a\ud800"}, "name: contains the control character '\\ud800' at position 1: remove it"),
        ({"base": "/" * 5000}, "base: 5,000 characters, and a path has at most 4,096"),
    ],
)
def test_paths_are_checked(desk: Callable[..., Desk], changes: dict[str, str], said: str) -> None:
    assert asyncio.run(desk().submit(ANN, **changes)).startswith(f"BftrainerError: {said}. Submit")


def test_the_size_is_a_setting(desk: Callable[..., Desk]) -> None:
    own = desk(max_spec_kb=1)
    assert "a spec has at most 1 kB: shorten it" in asyncio.run(own.submit(ANN, SPEC + "#" * 2000))


def test_specs_are_read_in_a_thread_of_their_own_and_few_wait_for_it(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    go, readers = threading.Event(), set[str]()

    def slow(*arguments: Any) -> TrainerSpec:
        readers.add(threading.current_thread().name)
        go.wait(60.0)
        return parse(*arguments)

    monkeypatch.setattr(submissions, "parse", slow)
    monkeypatch.setattr(submissions, "SPECS_WAITING", 3)
    monkeypatch.setattr(submissions, "SPECS_OF_A_USER", 2)

    async def story() -> None:
        own = desk()
        first = [asyncio.create_task(own.submit(ANN)) for _ in range(2)]
        await asyncio.sleep(0)
        said = await own.submit(ANN)  # the loop goes on meanwhile
        assert said.startswith("TooManyError: 2 specs of yours wait to be read, the most for one user. ")
        first.append(asyncio.create_task(own.submit(BOB)))
        await asyncio.sleep(0)
        said = await own.submit(OPS)
        assert said.startswith("FullError: 3 specs wait to be read, the most here. ")
        go.set()
        assert await asyncio.gather(*first) == ["ann", "ann", "bob"]
        assert [await own.submit(ANN) for _ in range(3)] == ["ann"] * 3
        assert (await own.submit(ANN, "name: [")).startswith("SpecError: a.yaml:")

    asyncio.run(story())
    assert len(readers) == 1 and not readers & {threading.main_thread().name}


def test_what_each_refusal_means_to_a_client() -> None:
    status = {
        kind: next(code for of, code in STATUS_OF if issubclass(kind, of))
        for kind in (TooManyError, FullError, SpecError)
    }
    assert status == {TooManyError: 429, FullError: 503, SpecError: 400}
