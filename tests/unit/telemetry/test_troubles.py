"""The register of what is wrong."""

from __future__ import annotations

from bftrainer.telemetry.troubles import Trouble, Troubles


def test_only_changes_between_working_and_not_are_news() -> None:
    troubles = Troubles()
    assert not troubles.set("store", None)
    assert troubles.set("store", Trouble("disk full"))
    assert not troubles.set("store", Trouble("disk still full"))
    assert troubles.texts(details=False) == ["disk still full"] and troubles.has("store")
    assert troubles.set("store", None)
    assert not troubles.has("store") and troubles.texts(details=True) == []


def test_details_are_for_those_who_may_read_them_and_the_order_is_fixed() -> None:
    troubles = Troubles()
    troubles.set("allocator", Trouble("knapsack makes the plans"))
    troubles.set("pilots", Trouble("no pilot can be submitted", "unknown user ann"))
    troubles.set("scheduler", Trouble("3 polls failed: slow"))
    said = ["3 polls failed: slow", "no pilot can be submitted", "knapsack makes the plans"]
    assert troubles.texts(details=False) == said
    assert troubles.texts(details=True)[1] == "no pilot can be submitted: unknown user ann"


def test_a_daemon_that_decides_all_the_same_can_do_its_work() -> None:
    troubles = Troubles()
    troubles.set("allocator", Trouble("knapsack makes the plans"))
    assert troubles.texts(details=False, blocking=True) == []
    troubles.set("pilots", Trouble("no pilot can be submitted"))
    assert troubles.texts(details=False, blocking=True) == ["no pilot can be submitted"]


def test_what_has_happened_is_over_when_it_does_not_happen_again() -> None:
    now, ended = [0.0], list[str]()
    troubles = Troubles(lambda: now[0], ended.append)
    assert troubles.happened("connections", Trouble("refused", "of ann"), 60.0)
    now[0] = 59.0
    assert not troubles.happened("connections", Trouble("refused", "of bob"), 60.0)
    now[0] = 118.0
    assert troubles.texts(details=False) == ["refused (2 times)"]
    assert troubles.texts(details=True) == ["refused: of bob (2 times)"]
    now[0] = 119.0
    assert not troubles.has("connections") and ended == ["connections"]
    assert troubles.happened("connections", Trouble("refused"), 60.0)
    assert troubles.texts(details=False) == ["refused"], "counted anew"


def test_what_happens_does_not_end_what_lasts() -> None:
    now = [0.0]
    troubles = Troubles(lambda: now[0])
    troubles.set("store", Trouble("disk full"))
    assert not troubles.happened("store", Trouble("slow"), 1.0)
    now[0] = 2.0
    assert troubles.texts(details=False) == ["disk full"]


def test_what_keeps_the_daemon_from_its_work_is_told_apart_from_what_does_not() -> None:
    troubles = Troubles()
    troubles.happened("agents", Trouble("an agent was cut off"))
    troubles.happened("connections", Trouble("connections are refused"))
    assert troubles.texts(details=False, blocking=True) == ["connections are refused"]
    assert troubles.texts(details=False, blocking=False) == ["an agent was cut off"]
    assert troubles.texts(details=False) == ["connections are refused", "an agent was cut off"]
