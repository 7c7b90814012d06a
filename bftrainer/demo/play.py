"""Plays the acts of the demonstration: looks, gives the orders that are due, and says what has happened."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bftrainer.demo.acts import Play, Scene, curtain, script
from bftrainer.demo.session import DemoSession
from bftrainer.demo.view import DaemonView, Told

LOOK_S = 0.25


def played(session: DemoSession, spec: Path, seconds: float) -> Iterator[DaemonView]:
    """Submit the trainer of `spec` and play all acts with it, for `seconds` at most. Yields a view after each
    look; the last one has all that was said.

    Raises:
        BftrainerError: The daemon refuses the spec.
    """
    while not (units := [n["node"] for n in session.nodes()]):
        time.sleep(LOOK_S)
    session.perform(curtain(units))
    while sum(n["state"] != "busy" for n in session.nodes()) > 1:
        time.sleep(LOOK_S)
    session.submit([spec])
    play: Play | None = None
    told: tuple[Told, ...] = ()
    while True:
        view = session.view()
        play = play or Play(script(units, view.trainers[0]["name"]))
        play, orders, said = play.follow(Scene.of(view, session.waits()))
        session.perform(orders)
        told += said
        yield replace(view, told=told, acts_left=play.left)
        if play.over or view.elapsed_s >= seconds or all(t["ended_at"] for t in view.trainers):
            return
        time.sleep(LOOK_S)
