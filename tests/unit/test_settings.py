"""Settings: which source wins, and what unknown names and impossible values are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from bftrainer.errors import BftrainerError
from bftrainer.model import EngineSettings
from bftrainer.settings import FOR_WORKERS, Settings, SettingsError, load


@pytest.fixture
def nowhere(tmp_path: Path) -> dict[str, str]:
    """An environment whose default file does not exist."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults(nowhere: dict[str, str]) -> None:
    found = load({}, environ=nowhere)
    assert found.allocator == "auto"
    assert found.engine == EngineSettings()


def test_command_line_beats_environment_beats_file_beats_default(
    tmp_path: Path, nowhere: dict[str, str]
) -> None:
    file = write(tmp_path / "c.yaml", "t_fwd_s: 1\nmax_parallel: 1\npoll_s: 1\n")
    environ = {**nowhere, "BFTRAINER_T_FWD_S": "2", "BFTRAINER_MAX_PARALLEL": "2", "PATH": "/bin"}
    found = load({"t_fwd_s": 3, "poll_s": None, "objective": None}, file=file, environ=environ)
    assert (found.t_fwd_s, found.max_parallel, found.poll_s) == (3.0, 2, 1.0)
    assert found.objective == "throughput"


def test_the_default_file_is_read_where_there_is_one(nowhere: dict[str, str]) -> None:
    write(Path(nowhere["XDG_CONFIG_HOME"]) / "bftrainer" / "config.yaml", "allocator: equal\n")
    assert load({}, environ=nowhere).allocator == "equal"
    other = write(Path(nowhere["XDG_CONFIG_HOME"]) / "other.yaml", "poll_s: 2\n")
    assert load({}, file=other, environ=nowhere).allocator == "auto"  # one file, not both


def test_an_empty_file_says_nothing(tmp_path: Path, nowhere: dict[str, str]) -> None:
    file = write(tmp_path / "c.yaml", "# all defaults\n")
    assert load({}, file=file, environ=nowhere) == load({}, environ=nowhere)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t_fw_s: 3\n", "unknown setting 't_fw_s'; did you mean 't_fwd_s'?"),
        ("zzzzzz: 3\n", "unknown setting 'zzzzzz'; valid names: state_dir, allocator"),
        ("- a\n", "expected lines of 'name: value', got list"),
        ("a: [\n", "c.yaml"),
        ("t_fwd_s: 0\n", "c.yaml: t_fwd_s: 0: input should be greater than 0"),
        ("poll_s: .inf\n", "c.yaml: poll_s: inf: input should be"),
        ("max_parallel: many\n", "c.yaml: max_parallel: 'many': input should be a valid integer"),
        (
            "allocator: best\n",
            "c.yaml: allocator: 'best': input should be 'auto', 'milp', 'knapsack' or 'equal'",
        ),
    ],
)
def test_errors_in_a_file_name_it(tmp_path: Path, nowhere: dict[str, str], text: str, said: str) -> None:
    file = write(tmp_path / "c.yaml", text)
    with pytest.raises(SettingsError) as error:
        load({}, file=file, environ=nowhere)
    assert str(error.value).startswith(str(file))
    assert said in str(error.value)


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path, nowhere: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"none\.yaml"):
        load({}, file=tmp_path / "none.yaml", environ=nowhere)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "BFTRAINER_POLL",
            "1",
            "environment BFTRAINER_*: unknown setting 'BFTRAINER_POLL'; did you mean 'poll_s'?",
        ),
        (
            "BFTRAINER_POLL_S",
            "soon",
            "environment BFTRAINER_*: poll_s: 'soon': input should be a valid number",
        ),
    ],
)
def test_errors_in_the_environment(nowhere: dict[str, str], name: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError) as error:
        load({}, environ={**nowhere, name: value})
    assert str(error.value).startswith(said)


def test_errors_on_the_command_line(nowhere: dict[str, str]) -> None:
    with pytest.raises(
        SettingsError, match=r"^command line: unknown setting 'debounce'; did you mean 'debounce_s'"
    ):
        load({"debounce": 1}, environ=nowhere)
    with pytest.raises(SettingsError, match=r"^command line: max_failures: -1: input should be greater"):
        load({"max_failures": -1}, environ={**nowhere, "BFTRAINER_MAX_FAILURES": "2"})
    assert issubclass(SettingsError, BftrainerError)


def test_all_errors_come_at_once_each_with_its_source(nowhere: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as error:
        load({"poll_s": -1}, environ={**nowhere, "BFTRAINER_T_FWD_S": "x"})
    told = str(error.value).splitlines()
    assert len(told) == 2
    assert any(line.startswith("command line: poll_s") for line in told)
    assert any(line.startswith("environment BFTRAINER_*: t_fwd_s") for line in told)


def test_what_an_agent_tells_its_workers_is_no_setting(nowhere: dict[str, str]) -> None:
    assert load({}, environ={**nowhere, **dict.fromkeys(FOR_WORKERS, "x")}) == load({}, environ=nowhere)


def test_settings_are_frozen_and_described(nowhere: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load({}, environ=nowhere).poll_s = 3.0  # type: ignore[misc]
    assert all(field.description for field in Settings.model_fields.values())


def test_every_setting_of_the_engine_reaches_it(nowhere: dict[str, str]) -> None:
    chosen = {
        "allocator": "milp",
        "objective": "efficiency",
        "t_fwd_s": 7.0,
        "max_parallel": 3,
        "milp_time_limit_s": 2.0,
        "max_failures": 5,
    }
    assert load(chosen, environ=nowhere).engine == EngineSettings(**chosen)  # type: ignore[arg-type]


def test_paths_hang_off_the_state_directory(tmp_path: Path, nowhere: dict[str, str]) -> None:
    found = load({"state_dir": tmp_path}, environ=nowhere)
    assert (found.socket.parent, found.database.parent) == (tmp_path, tmp_path)
