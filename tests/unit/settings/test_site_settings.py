"""What several settings check: sets of nodes, words with a user's name in them, addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.settings.client.given import SettingsError
from bftrainer.settings.site import check_placeholders, host_and_port
from bftrainer.settings.sources import load


def test_a_sets_size_is_told_before_it_is_expanded(tmp_path: Path) -> None:
    for name, value in (("exclude_nodes", "n[1-99999999]"), ("node_classes", {"fat": "n[1-99999999]"})):
        with pytest.raises(SettingsError, match="names more than 100,000 nodes; give fewer"):
            load({name: value}, environ={"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.mark.parametrize("word", ["/scratch/{user}/x", "{user}{user}", "plain", "{{not}}"])
def test_words_with_a_users_name(word: str) -> None:
    check_placeholders(word)


@pytest.mark.parametrize(
    "word",
    [
        "{user.__class__}",
        "{user[0]}",
        "{user!r}",
        "{user:>99999999}",
        "{user:{user}}",
        "{}",
        "{0}",
        "{home}",
        "{",
    ],
)
def test_nothing_but_the_users_name_is_filled_in(word: str) -> None:
    with pytest.raises(ValueError, match=r"\{user\} is all that can be filled in"):
        check_placeholders(word)


@pytest.mark.parametrize("text", ["host", "host:", ":1", "host:65536", "host:" + "1" * 5000, "host:-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="give host:port"):
        host_and_port(text)


@pytest.mark.parametrize("given", [{"munge": True}, {"listen_users": "0.0.0.0:7465"}])
def test_users_on_other_machines_need_munge_and_a_port_of_their_own(
    tmp_path: Path, given: dict[str, object]
) -> None:
    with pytest.raises(SettingsError, match="munge and listen_users go together"):
        load(given, environ={"XDG_CONFIG_HOME": str(tmp_path)})
