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
