"""What several settings check: sets of nodes, words with a user's name in them, addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.settings.checks import MAX_NODES, check_placeholders, host_and_port, nodeset
from bftrainer.settings.client.given import SettingsError
from bftrainer.settings.sources import load


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[01-03],gpu3", {"n01", "n02", "n03", "gpu3"}),
        ("r[1-2]n[1-2]", {"r1n1", "r1n2", "r2n1", "r2n2"}),
        ("n[1-5/2],b[1,3-4]", {"n1", "n3", "n5", "b1", "b3", "b4"}),
        ("n[1-3]!n2", {"n1", "n3"}),
        ("a[1-2]x[1-2],b[3-4]", {"a1x1", "a1x2", "a2x1", "a2x2", "b3", "b4"}),
    ],
)
def test_sets_of_nodes(text: str, names: set[str]) -> None:
    assert set(nodeset(text)) == names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n[1-100000000]", "names more than 100,000 nodes"),
        ("n[1-1000000000]", "is no range of numbers, of 9 digits at most"),
        ("r[1-1000]n[1-1000]", "names more than 100,000 nodes"),
        ("a,b[1-99999],c[1-2]", "names more than 100,000 nodes"),
        (",".join("a" * (MAX_NODES + 1)), "names more than 100,000 nodes"),
        ("n1\0", "names have no such characters"),
        ("n1\x1b[2J", "names have no such characters"),
        ("n1\ud800", "names have no such characters"),
        ("n\u0661", "names have no such characters"),
        ("n[1", "no set of nodes"),
        ("n[x-y]", "is no range of numbers"),
        ("n[1-5/0]", "is no set of nodes"),
    ],
)
def test_sets_that_no_machine_has(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        nodeset(text)


def test_only_the_brackets_of_one_name_multiply() -> None:
    assert len(nodeset("a[1-2000],b[1-2000],c[1-2000]")) == 6000


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
