"""Which settings a running daemon can take over, and which need a restart. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from bftrainer.settings.values import Settings, SettingsError

LIVE = frozenset(
    {
        # who gets nodes, and how that is decided
        "allocator",
        "solver",
        "objective",
        "t_fwd_s",
        "max_parallel",
        "nodes_per_trainer",
        "ageing_s",
        "user_max_nodes",
        "milp_time_limit_s",
        "milp_gap",
        "profile_sizes",
        "max_failures",
        # who may do what
        "admins",
        # how the scheduler is watched and pilots are waited for
        "poll_s",
        "poll_max_s",
        "min_hole_s",
        "exclude_nodes",
        "vacate_s",
        "spare_s",
        "submissions_per_minute",
        "debounce_s",
        "failed_polls",
        "pilot_start_s",
        "reconnect_s",
    }
)
"""What is read anew whenever it is needed. Everything else was built into what runs: files and sockets that
are open, nodes that were classed as they joined, what agents were told when they started."""


Refused = Mapping[str, tuple[object, object]]
"""Settings that need a restart: name -> (value that is kept, value that was wanted)."""


def reloaded(old: Settings, new: Settings) -> tuple[Settings, Refused]:
    """`old` with what may change taken from `new`, and what may not.

    Raises:
        SettingsError: what may change does not go together with what may not.
    """
    held = {name: getattr(old, name) for name in Settings.model_fields}
    wanted = {name: getattr(new, name) for name in Settings.model_fields if getattr(new, name) != held[name]}
    refused = {name: (held[name], value) for name, value in wanted.items() if name not in LIVE}
    try:
        settings = Settings.model_validate(held | {n: v for n, v in wanted.items() if n in LIVE})
    except ValidationError as error:
        said = "; ".join(e["msg"].removeprefix("Value error, ") for e in error.errors())
        kept = ", ".join(sorted(refused))
        raise SettingsError(f"{said} ({kept} cannot change without a restart)") from error
    return settings, refused
