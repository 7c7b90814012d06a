"""Which settings a running daemon takes over."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.settings.client.given import SettingsError
from bftrainer.settings.live import LIVE, reloaded
from bftrainer.settings.sources import load
from bftrainer.settings.values import Settings


def settings(**given: object) -> Settings:
    return load(given, environ={"XDG_CONFIG_HOME": "/nowhere", "BFTRAINER_SITE_CONFIG": "/nowhere"})


def test_nothing_changes_where_nothing_changed() -> None:
    old = settings(state_dir="/srv/a")
    assert reloaded(old, settings(state_dir="/srv/a")) == (old, {})


def test_policy_changes_and_what_is_built_in_is_refused_by_name() -> None:
    old = settings(state_dir="/srv/a", poll_s=1, objective="throughput")
    assert old.engine.objective == "throughput"  # derived, and kept: it must not be carried over
    found, refused = reloaded(old, settings(state_dir="/srv/b", poll_s=2, objective="efficiency"))
    assert (found.poll_s, found.engine.objective) == (2.0, "efficiency")
    assert found.state_dir == Path("/srv/a")
    assert refused == {
        "state_dir": (Path("/srv/a"), Path("/srv/b")),
        "socket": (Path("/srv/a/daemon.sock"), Path("/srv/b/daemon.sock")),
        "pilot_log_dir": (Path("/srv/a/logs"), Path("/srv/b/logs")),
    }


def test_what_may_change_must_go_together_with_what_stays() -> None:
    old = settings(node_classes={"fat": "n1"})
    with pytest.raises(SettingsError, match=r"equal shares know one class.* \(node_classes cannot change"):
        reloaded(old, settings(allocator="equal"))


def test_every_name_is_a_setting() -> None:
    assert Settings.model_fields.keys() >= LIVE
