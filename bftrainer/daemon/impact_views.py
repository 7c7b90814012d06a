"""What the daemon answers about main jobs and what is left to them, as typed JSON objects. Pure."""

from __future__ import annotations

from typing import TypedDict

from bftrainer.nodes.headroom import Spared


class HeadroomView(TypedDict):
    """How many idle nodes are left to main jobs: `setting` is what the settings say, `wanted` what that means
    now, of `usable` nodes, which are idle or ours, and `free` how many of them have no pilot of ours."""

    setting: str
    wanted: int
    usable: int
    free: int


def headroom_view(setting: str, spared: Spared) -> HeadroomView:
    """What is left to main jobs, as the status shows it."""
    return {"setting": setting, "wanted": spared.total, "usable": spared.usable, "free": spared.free}
