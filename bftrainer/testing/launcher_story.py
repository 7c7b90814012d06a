"""Building blocks for the stories of the launchers' contract."""

from __future__ import annotations

from bftrainer.model.reports import Row
from bftrainer.model.trainer import TrainerStatus
from bftrainer.testing.launcher_world import LauncherWorld


def told(world: LauncherWorld, kind: str, **data: object) -> list[Row]:
    """The stored events of a kind whose data have these values; of a list of nodes, one is enough."""

    def fits(found: object, wanted: object) -> bool:
        return wanted in found if isinstance(found, list) else found == wanted

    return [
        row
        for row in world.events()
        if row["kind"] == kind and all(fits(row["data"][key], wanted) for key, wanted in data.items())
    ]


def trains_on(world: LauncherWorld, *nodes: str) -> bool:
    """Return whether exactly these nodes are members, and all have joined."""
    view = world.trainer()
    joined = {node for node, phase in view.workers.items() if phase == "member"}
    return set(view.members) == joined == set(nodes)


def until_trains_on(world: LauncherWorld, *nodes: str) -> None:
    """Wait until exactly these nodes are members and have joined."""
    world.until(lambda: trains_on(world, *nodes), f"the trainer trains on {', '.join(nodes)}")


def until_progress(world: LauncherWorld) -> None:
    """Wait until more samples are done than now."""
    before = world.trainer().samples
    world.until(lambda: world.trainer().samples > before, f"it gets beyond {before} samples")


def begin(world: LauncherWorld, *nodes: str) -> None:
    """Submit the trainer and have it train on these nodes."""
    world.submit()
    world.change(give=nodes)
    until_trains_on(world, *nodes)
    until_progress(world)


def until_lost(world: LauncherWorld, node: str) -> None:
    """Wait until the engine has been told of the loss of a worker, with a reason."""
    world.until(lambda: told(world, "WorkerLost", node=node), f"the loss of {node}'s worker is told")
    assert all(row["data"]["reason"] for row in told(world, "WorkerLost", node=node))


def until_phase(world: LauncherWorld, node: str, phase: str) -> None:
    """Wait until the worker on a node is in this phase."""
    world.until(lambda: world.trainer().workers.get(node) == phase, f"{node}'s worker is {phase}")


def ends_well(world: LauncherWorld, *kinds: str) -> None:
    """The work is done, exactly; no process is left; the store has the end and pauses of these kinds.

    The worker that replaces a lost one may be ready before the others have met: then one pause, of all
    members, is both.
    """
    members = len(world.trainer().members)
    world.finish()
    world.until(lambda: world.trainer().ended, "the trainer has ended")
    view = world.trainer()
    assert view.status is TrainerStatus.COMPLETED
    assert view.samples == view.work
    assert len(told(world, "TrainerEnded", status="completed")) >= 1
    pauses = world.pauses()
    if world.keeps_steps:
        found = {pause["kind"] for pause in pauses}
        if any((pause["kind"], pause["size"]) == ("loss", members) for pause in pauses):
            found.add("join")
        assert set(kinds) <= found, [*pauses, *told(world, "WorkerLost")]
        lossy = [p for p in pauses if p["kind"] != "restart" and p["lost_steps"]]
        assert not lossy, lossy
    else:
        assert pauses
    world.audit()
    leaves_nothing(world)


def leaves_nothing(world: LauncherWorld) -> None:
    """The trainer's workers end, and after the daemon no process is left."""
    world.until(lambda: not world.trainer().workers, "the trainer's workers have gone")
    world.stop()
    assert not list(world.processes())
