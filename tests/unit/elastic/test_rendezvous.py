"""The store through which the members of a generation find each other: who waits there can be called off."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from bftrainer.elastic.members.rendezvous import CalledOff, Rendezvous
from tests.support.waiting import LONG_S

DAY = timedelta(days=1)


class Watched(threading.Condition):
    """Tells when somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.set()  # whoever has the lock next comes while it really waits
        return super().wait(timeout)


@pytest.mark.parametrize("is_called_off", [True, False])
def test_who_waits_is_called_off_at_once_or_has_what_arrives(is_called_off: bool) -> None:
    pushed, found = list[tuple[str, bytes]](), list[str]()
    store = Rendezvous(lambda key, value: pushed.append((key, value)))
    store._changed = watched = Watched()
    store.set("mine", "x")

    def wait() -> None:
        try:
            store.wait(["mine", "yours"], DAY)
            found.append("there")
        except CalledOff:
            found.append("called off")

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert watched.waits.wait(LONG_S)
    if is_called_off:
        store.call_off()
    else:
        store.arrive("yours", b"y")
    waiting.join(LONG_S)
    assert found == ["called off" if is_called_off else "there"]
    assert pushed == [("mine", b"x")]
