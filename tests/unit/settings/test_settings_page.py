"""The facts of settings: each stands once, and what is derived from them is complete and current."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import bftrainer
from bftrainer.model.policy import EngineSettings
from bftrainer.replay import scenario
from bftrainer.settings.client.given import PREFIX
from bftrainer.settings.decisions import DecisionSettings
from bftrainer.settings.limits import LimitSettings
from bftrainer.settings.page import DOORS_BEGIN, page, with_table
from bftrainer.settings.setting import Section, facts
from bftrainer.settings.values import SECTIONS, Settings, of_command

ROOT = Path(bftrainer.__file__).parents[1]


def test_the_page_is_what_the_settings_say() -> None:
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == page(), "run `make docs`"


def test_the_table_of_doors_is_what_the_sources_say() -> None:
    there = (ROOT / "docs" / "contributing" / "doors.md").read_text(encoding="utf-8")
    assert there == with_table(there), "run `make docs`"


def test_every_limit_says_what_happens_and_who_is_told() -> None:
    found = facts(LimitSettings).items()
    assert [name for name, setting in found if not (setting.at_bound and setting.told)] == []
    others = set(facts(Settings)) - set(facts(LimitSettings))
    assert [name for name in others if facts(Settings)[name].at_bound] == []


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no lines"):
        with_table(DOORS_BEGIN)


def test_the_page_is_the_same_on_every_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = page()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv(f"{PREFIX}T_FWD_S", "7")
    assert page() == before


def test_every_setting_is_in_one_section_and_on_the_page() -> None:
    of_sections = [name for section in SECTIONS for name in section.model_fields]
    assert sorted(of_sections) == sorted(Settings.model_fields)
    assert all(f"\n| `{name}` |" in page() for name in Settings.model_fields)


def test_no_other_page_has_a_table_of_settings() -> None:
    """A row that begins with a setting's name and ends with its default would be a second home."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    starts = tuple(f"| `{name}` |" for name in Settings.model_fields)
    repeated = [
        (path.name, line)
        for path in pages
        if path.name not in ("settings.md", "trainer-spec.md")  # there: keys of a spec
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith(starts)
    ]
    assert not repeated


def test_amounts_have_their_unit() -> None:
    seconds = {name for name, setting in facts(Settings).items() if setting.unit == "s"}
    assert seconds == {name for name in Settings.model_fields if name.endswith("_s")}


def test_the_section_of_decisions_is_what_the_engine_has() -> None:
    assert {field.name for field in fields(EngineSettings)} == set(DecisionSettings.model_fields)
    assert DecisionSettings().engine == EngineSettings()


def test_replays_have_every_decision_but_failures() -> None:
    assert set(of_command("replay")) == set(DecisionSettings.model_fields) - {
        "max_failures",
        "max_failures_per_h",
        *("share", "gpus_per_node"),  # which follow from how the log is read
    }
    assert of_command("replay") == scenario.ENGINE


def test_a_field_without_facts_is_refused() -> None:
    class Bare(Section):
        speed_s: float = 1.0

    with pytest.raises(TypeError, match=r"Bare\.speed_s has 0 Settings"):
        facts(Bare)
