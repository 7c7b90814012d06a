"""Commands find the daemon as the whole settings would, and read hardly anything for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.settings.client.given import SettingsError
from bftrainer.settings.client.whereabouts import NAMES, found
from bftrainer.settings.sources import load

VALUES = st.one_of(
    st.sampled_from(
        ["~/x", "x/y.sock", "/a b", "h:1", "h:123456", ":1", "none", "", " ", "a\nb", "~nobody-x/y"]
    ),
    st.sampled_from([None, 7, True, 1.5, ["h:1"], {"a": 1}]),
)
GIVEN = st.dictionaries(st.sampled_from(sorted(NAMES)), VALUES, max_size=4)
OTHERS = st.sampled_from([{}, {"poll_s": 3}, {"poll_s": "often"}, {"servre": "h:1"}, {"mode": "single"}])


def outcome(places: object) -> tuple[object, ...]:
    return tuple(getattr(places, name) for name in sorted(NAMES))


@given(
    GIVEN,
    OTHERS,
    GIVEN,
    st.dictionaries(st.sampled_from(sorted(NAMES)), st.sampled_from(["~/e", "h:2", "none"])),
)
def test_it_is_found_where_the_settings_say_or_refused_as_they_are(
    tmp_path_factory: pytest.TempPathFactory,
    own: dict[str, object],
    others: dict[str, object],
    site: dict[str, object],
    variables: dict[str, str],
) -> None:
    folder = tmp_path_factory.getbasetemp()
    config = folder / "bftrainer" / "config.yaml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(yaml.safe_dump({**own, **others}))
    (folder / "site.yaml").write_text(yaml.safe_dump(site))
    environ = {f"BFTRAINER_{name.upper()}": value for name, value in variables.items()}
    environ |= {"XDG_CONFIG_HOME": str(folder), "BFTRAINER_SITE_CONFIG": str(folder / "site.yaml")}
    for option in (None, "some/where"):
        try:
            expected = load({"state_dir": option}, environ=environ)
        except SettingsError as error:
            with pytest.raises(SettingsError) as refused:
                found(option, environ=environ)
            assert str(refused.value) == str(error)
        else:
            assert outcome(found(option, environ=environ)) == outcome(expected)


def test_the_sites_other_settings_are_the_daemons_to_check(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("poll_s: often\nserver: login1:7465\n")
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "BFTRAINER_SITE_CONFIG": str(site)}
    assert found(None, environ=environ).server == "login1:7465"
    with pytest.raises(SettingsError, match=r"poll_s"):
        found(None, site, {"XDG_CONFIG_HOME": str(tmp_path)})  # named by --config, it is the user's


def test_to_find_it_neither_pydantic_nor_yaml_is_imported() -> None:
    words = ["-c", SCRIPT]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split("\n")[-2] == "[]"


SCRIPT = """
import os, sys
from bftrainer.cli.list_command import connect
os.environ["XDG_CONFIG_HOME"], os.environ["BFTRAINER_SITE_CONFIG"] = "/nowhere", "/nowhere"
connect(None, "/nowhere")
print(sorted({"pydantic", "yaml", "aiohttp.web", "rich.table", "numpy"} & set(sys.modules)))
"""
