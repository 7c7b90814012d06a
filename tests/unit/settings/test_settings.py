"""Settings: which source wins, and what unknown names and impossible values are told."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

import click
import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from bftrainer.cli.shared.options import setting_options
from bftrainer.errors import BftrainerError
from bftrainer.model.policy import EngineSettings
from bftrainer.settings.client.given import NO_SETTINGS, SettingsError
from bftrainer.settings.setting import facts
from bftrainer.settings.sources import load
from bftrainer.settings.values import NO_VALUE, Settings


@pytest.fixture
def nowhere(tmp_path: Path) -> dict[str, str]:
    """An environment whose default files do not exist."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "BFTRAINER_SITE_CONFIG": "/nowhere"}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_scheduler_has_defaults_of_its_own_that_every_source_overrides(
    nowhere: dict[str, str], tmp_path: Path
) -> None:
    lsf = load({"scheduler": "lsf"}, environ=nowhere)
    assert (lsf.poll_s, lsf.debounce_s) == (10.0, 10.0)
    assert (load({}, environ=nowhere).poll_s, load({}, environ=nowhere).debounce_s) == (0.5, 0.0)
    file = write(tmp_path / "site.yaml", "scheduler: lsf\npoll_s: 2\n")
    found = load({"debounce_s": 0.0}, file=file, environ=nowhere)
    assert (found.poll_s, found.debounce_s, found.poll_max_s) == (2.0, 0.0, lsf.poll_max_s)


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


def test_a_file_may_say_no_without_quotes(nowhere: dict[str, str]) -> None:
    write(Path(nowhere["XDG_CONFIG_HOME"]) / "bftrainer" / "config.yaml", "share_nodes: no\n")
    assert load({}, environ=nowhere).share_nodes == "no"


def test_a_sites_file_stands_below_the_users_own(tmp_path: Path, nowhere: dict[str, str]) -> None:
    site = write(tmp_path / "site.yaml", "server: login1:4711\npoll_s: 3\n")
    environ = {**nowhere, "BFTRAINER_SITE_CONFIG": str(site)}
    assert load({}, environ=environ).server == "login1:4711"
    own = write(Path(nowhere["XDG_CONFIG_HOME"]) / "bftrainer" / "config.yaml", "poll_s: 2\n")
    assert (load({}, environ=environ).server, load({}, environ=environ).poll_s) == ("login1:4711", 2.0)
    named = write(tmp_path / "named.yaml", "debounce_s: 4\n")
    found = load({}, file=named, environ=environ)
    assert (found.server, found.poll_s, found.debounce_s) == (None, 0.5, 4.0)
    own.write_text("servre: x:1\n")
    with pytest.raises(SettingsError, match=r"config\.yaml: unknown setting 'servre'; did you mean 'server'"):
        load({}, environ=environ)
    site.write_text("- a\n")
    with pytest.raises(SettingsError, match=r"site\.yaml: expected lines"):
        load({}, environ=environ)


def test_who_has_a_daemon_of_their_own_wants_nothing_of_the_sites(
    tmp_path: Path, nowhere: dict[str, str]
) -> None:
    site = write(
        tmp_path / "site.yaml",
        "mode: site\nexec_prefix: sudo -u {user} --\nsocket: /run/x/sock\nserver: login1:4711\n",
    )
    environ = {**nowhere, "BFTRAINER_SITE_CONFIG": str(site)}
    own = write(Path(nowhere["XDG_CONFIG_HOME"]) / "bftrainer" / "config.yaml", "mode: single\npoll_s: 2\n")
    assert load({}, environ=environ) == load({}, file=own, environ=nowhere)
    own.write_text("poll_s: 2\n")
    assert load({}, environ=environ).mode == "site"


def test_without_preemption_pilots_are_short_unless_told_otherwise(nowhere: dict[str, str]) -> None:
    assert load({}, environ=nowhere).pilot_limit_s("preempt") == 14_400
    assert load({}, environ=nowhere).pilot_limit_s("window") == 900
    assert load({"pilot_max_s": 60}, environ=nowhere).pilot_limit_s("window") == 60


PREFIXED = {"mode": "site", "socket": "/run/bft/sock", "exec_prefix": "sudo -n -u {user} --"}


def test_a_sites_daemon_runs_pilots_as_their_users(nowhere: dict[str, str], tmp_path: Path) -> None:
    found = load(PREFIXED, environ=nowhere)
    assert found.as_user("ann") == ("sudo", "-n", "-u", "ann", "--")
    words = write(tmp_path / "c.yaml", "mode: site\nsocket: /run/x\nexec_prefix: [su, '{user}', '{{}}']\n")
    assert load({}, file=words, environ=nowhere).as_user("ann") == ("su", "ann", "{}")
    assert load({}, environ=nowhere).as_user("ann") == ()
    admins = write(tmp_path / "d.yaml", "admins: [root, '@ops']\n")
    assert load({}, file=admins, environ=nowhere).admins == ("root", "@ops")
    assert load({"admins": "root '@two words'"}, environ=nowhere).admins == ("root", "@two words")
    of_domain = ("EXAMPLE\\alice", "alice@ad.example.org", "@EXAMPLE\\domain admins")
    text = "EXAMPLE\\alice alice@ad.example.org '@EXAMPLE\\domain admins'"
    assert load({"admins": text}, environ=nowhere).admins == of_domain
    quoted = write(
        tmp_path / "e.yaml", "admins: [EXAMPLE\\alice, alice@ad.example.org, '@EXAMPLE\\domain admins']\n"
    )
    assert load({}, file=quoted, environ=nowhere).admins == of_domain


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({**PREFIXED, "exec_prefix": "sudo -n --"}, "mode site needs an exec_prefix with {user}"),
        ({**PREFIXED, "mode": "single"}, "exec_prefix counts with mode site only"),
        ({**PREFIXED, "exec_prefix": "sudo {name} {user}"}, "{user} is all that can be filled in"),
        ({**PREFIXED, "exec_prefix": "sudo {user} {"}, "{user} is all that can be filled in"),
        ({**PREFIXED, "exec_prefix": "sudo '{user}"}, "no closing quotation"),
        ({**PREFIXED, "exec_prefix": ["sudo", {"user": None}]}, "in YAML, {user} has to be quoted"),
        ({**PREFIXED, "socket": "/s/daemon.sock", "state_dir": "/s"}, "nobody else can reach the socket"),
        ({**PREFIXED, "scheduler": "local"}, "the local scheduler runs everything as the daemon"),
        ({"trainer_dir": "/scratch/{home}"}, "{user} is all that can be filled in"),
        ({"server": "login1"}, "server: 'login1': string should match pattern"),
        ({"mode": "open"}, "mode: 'open': input should be 'single' or 'site'"),
    ],
)
def test_what_a_site_cannot_be(nowhere: dict[str, str], given: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(given, environ=nowhere)
    assert said in str(error.value)


def test_an_empty_file_says_nothing(tmp_path: Path, nowhere: dict[str, str]) -> None:
    file = write(tmp_path / "c.yaml", "# all defaults\n")
    assert load({}, file=file, environ=nowhere) == load({}, environ=nowhere)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t_fw_s: 3\n", "unknown setting 't_fw_s'; did you mean 't_fwd_s'?"),
        ("zzzzzz: 3\n", "unknown setting 'zzzzzz'; valid names: state_dir, socket"),
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
    assert load({}, environ={**nowhere, **dict.fromkeys(NO_SETTINGS, "x")}) == load({}, environ=nowhere)


def test_settings_are_frozen_and_described(nowhere: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load({}, environ=nowhere).poll_s = 3.0  # type: ignore[misc]
    assert all(setting.help for setting in facts(Settings).values())


def test_every_setting_of_the_engine_reaches_it(nowhere: dict[str, str]) -> None:
    chosen = {
        "allocator": "milp",
        "solver": "scip",
        "objective": "efficiency",
        "goodput_power": -1.0,
        "weights_by": "service",
        "service_threshold_s": 600.0,
        "service_decay": 1.0,
        "low_utility": 0.3,
        "high_utility": 0.5,
        "t_fwd_s": 7.0,
        "max_parallel": None,
        "nodes_per_trainer": 3.0,
        "ageing_s": 60.0,
        "user_max_nodes": 4,
        "user_shares": {"ann": 2.0, "others": 1.0},
        "departure_groups": "cabinet",
        "milp_time_limit_s": 2.0,
        "milp_gap": 0.5,
        "profile_sizes": 3,
        "max_failures": 5,
        "max_failures_per_h": 6,
        "share": "gpu",
        "gpus_per_node": 4,
        "avoid_interference": False,
        "share_nodes": "users",
    }
    given = {**chosen, "max_parallel": "auto", "node_classes": {"fat": "n[01-02],x", "thin": "n03"}}
    classes = {"fat": frozenset({"n01", "n02", "x"}), "thin": frozenset({"n03"})}
    wanted = EngineSettings(**chosen, node_classes=classes)  # type: ignore[arg-type]
    assert load(given, environ=nowhere).engine == wanted
    names = {field.name for field in fields(EngineSettings)}
    assert names == {*chosen, "node_classes"}, "a setting that this test does not know"


def test_a_sites_users_have_equal_shares_unless_it_says_otherwise(nowhere: dict[str, str]) -> None:
    """Else the objective gives a study of fast trials all nodes, and a neighbour's slow trainer none."""
    assert load(PREFIXED, environ=nowhere).engine.user_shares == {"others": 1.0}
    assert load({**PREFIXED, "user_shares": {}}, environ=nowhere).engine.user_shares == {}
    own = {**PREFIXED, "user_shares": "{ann: 2}"}
    assert load(own, environ=nowhere).engine.user_shares == {"ann": 2.0}
    assert load({}, environ=nowhere).engine.user_shares == {}


def test_a_low_utility_above_the_high_one_is_refused(nowhere: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"low_utility 0\.4 is above high_utility 0\. Give both"):
        load({"low_utility": 0.4}, environ=nowhere)


def test_gpus_per_node_counts_where_gpus_are_shared_out(nowhere: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"gpus_per_node 4 counts with share gpu only\. Set share: gpu"):
        load({"gpus_per_node": 4}, environ=nowhere)


# --- settings that may be left open --------------------------------------------------------------


@pytest.mark.parametrize(("name", "word"), NO_VALUE.items())
def test_the_word_for_none_is_understood_from_everywhere(
    tmp_path: Path, nowhere: dict[str, str], name: str, word: str
) -> None:
    number = "70"  # within the bounds of all numbers
    value = {"server": "login:7", "promise": "median_s=0.5,p99_s=70"}.get(name, number)
    environ = {**nowhere, f"BFTRAINER_{name.upper()}": word}
    for found in (
        load({name: word}, environ=nowhere),
        load({}, environ=environ),
        load({}, file=write(tmp_path / "c.yaml", f"{name}: {word}\n"), environ=nowhere),
        load({}, file=write(tmp_path / "d.yaml", f"{name}: null\n"), environ=nowhere),
        load({name: word}, environ={**environ, f"BFTRAINER_{name.upper()}": value}),
    ):
        assert getattr(found, name) is None
        assert getattr(found.engine, name, None) is None
    others = {"max_parallel": "auto"} if name == "nodes_per_trainer" else {}
    assert str(getattr(load({**others, name: value}, environ=environ), name)).removesuffix(".0") == value
    with pytest.raises(SettingsError, match=rf"{name}: 'some': .*; or give '{word}'"):
        load({name: "some"}, environ=nowhere)


def test_whatever_may_be_none_has_a_word_for_it_that_the_help_shows(nowhere: dict[str, str]) -> None:
    optional = {n for n, f in Settings.model_fields.items() if type(None) in get_args(f.annotation)}
    assert optional == NO_VALUE.keys()

    @setting_options(*Settings.model_fields)
    @click.command()
    def command(**given: object) -> None:
        """All settings."""

    told = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert "None" not in told
    for name in ("user-max-nodes", "nodes-per-trainer"):
        assert told.split(f"--{name} ")[1].split("[default: ")[1].startswith("none]")
    assert "the MILP" in told
    assert "14400 with mode preempt, 900 with mode window" in told


# --- what is more than a number ------------------------------------------------------------------


def test_classes_of_nodes_come_as_a_mapping_or_as_its_text(tmp_path: Path, nowhere: dict[str, str]) -> None:
    text = "{fat: 'n[01-02]', thin: 'n03,x'}"
    wanted = {"fat": frozenset({"n01", "n02"}), "thin": frozenset({"n03", "x"})}
    for found in (
        load({"node_classes": text}, environ=nowhere),
        load({}, environ={**nowhere, "BFTRAINER_NODE_CLASSES": text}),
        load({}, file=write(tmp_path / "c.yaml", f"node_classes: {text}\n"), environ=nowhere),
    ):
        assert found.engine.node_classes == wanted
    assert load({"node_classes": "{}"}, environ=nowhere).engine.node_classes == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{fat: [", "node_classes: '{fat: [': no YAML; write it like {fat: 'n[01-08]'}"),
        ("fat", "node_classes: 'fat': input should be a valid dictionary"),
        ("[fat]", "node_classes: ['fat']: input should be a valid dictionary"),
        ("{fat: 3}", "node_classes.fat: 3: input should be a valid string"),
        ("{fat: [n1]}", "node_classes.fat: ['n1']: input should be a valid string"),
        ("{fat: 'n[1-'}", "'n[1-' is no set of nodes such as n[01-08]"),
        ("{fat: 'n[1-4]', thin: 'n[4-5]'}", "node n4 is in fat and in thin. Keep one"),
    ],
)
def test_impossible_classes_are_explained(nowhere: dict[str, str], text: str, said: str) -> None:
    with pytest.raises(SettingsError) as error:
        load({}, environ={**nowhere, "BFTRAINER_NODE_CLASSES": text})
    assert str(error.value).startswith("environment BFTRAINER_*: node_classes")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"solver": "glpk"}, "solver: 'glpk': input should be 'highs', 'gurobi', 'cplex', 'scip' or 'cbc'"),
        ({"objective": "speed"}, "objective: 'speed': 'speed' is no objective. Give one of throughput"),
        ({"objective": "0.7*efficiency+x"}, "'x' is no objective"),
        ({"departure_groups": "rack"}, "input should be 'none', 'joined' or 'cabinet'"),
        ({"max_parallel": 0}, "max_parallel: 0: input should be greater than or equal to 1; or give 'auto'"),
        ({"t_fwd_s": "never"}, "t_fwd_s: 'never': input should be a valid number"),
        ({"ageing_s": 0}, "ageing_s: 0: input should be greater than 0; or give 'never'"),
        ({"user_max_nodes": -1}, "user_max_nodes: -1: input should be greater than or equal to 1"),
        ({"milp_gap": 1}, "milp_gap: 1: input should be less than 1"),
        (
            {"allocator": "equal", "node_classes": {"fat": "n1"}},
            "settings: equal shares know one class of nodes. Use the allocator auto with node_classes",
        ),
        (
            {"harvest": "gpus", "slurm_options": "--constraint=ib --gres=gpu:1"},
            "take --gres=gpu:1 out of slurm_options",
        ),
    ],
)
def test_choices_that_cannot_be(nowhere: dict[str, str], given: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(given, environ=nowhere)
    assert said in str(error.value)


def test_a_mixture_is_an_objective(nowhere: dict[str, str]) -> None:
    mixed = "0.7*efficiency + 0.3*priority"
    assert load({"objective": mixed}, environ=nowhere).engine.objective == mixed


@pytest.mark.parametrize(
    "code",
    ["import bftrainer.settings", "from bftrainer.cli import app\napp(['--help'], standalone_mode=False)"],
)
def test_nothing_slow_is_imported_before_it_is_needed(code: str) -> None:
    slow = {"numpy", "ClusterShell", "pyomo", "highspy", "matplotlib", "sqlalchemy", "aiohttp"}
    asked = f"{code}\nimport sys\nprint('loaded', *({slow!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "loaded"


def test_paths_hang_off_the_state_directory(tmp_path: Path, nowhere: dict[str, str]) -> None:
    found = load({"state_dir": tmp_path}, environ=nowhere)
    assert (found.socket.parent, found.database.parent) == (tmp_path, tmp_path)


def test_nodes_per_trainer_without_auto_is_refused(nowhere: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="nodes_per_trainer 8 counts with max_parallel auto only"):
        load({"nodes_per_trainer": 8}, environ=nowhere)


def test_nodes_to_keep_out_are_a_range_or_a_list(nowhere: dict[str, str]) -> None:
    for given in ("n[1-2],gpu", ["n[1-2]", "gpu"]):
        assert load({"exclude_nodes": given}, environ=nowhere).excluded == {"n1", "n2", "gpu"}
    with pytest.raises(SettingsError, match="n\\[01-08\\]"):
        load({"exclude_nodes": "n[1-"}, environ=nowhere)


def test_a_file_that_is_none_or_of_no_use_ends_in_one_message(tmp_path: Path) -> None:
    fifo, huge, deep, odd = (tmp_path / name for name in ("fifo", "huge", "deep", "odd"))
    os.mkfifo(fifo)
    with huge.open("wb") as file:
        file.truncate(2**40)
    deep.write_text("[" * 100_000)
    odd.write_text(f"poll_s: {'9' * 100}\n")
    for path, why in (
        (fifo, "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path, "not a regular file"),
        (huge, "at most 1000 kB are read"),
        (deep, "nested too deeply"),
        (odd, "a number has at most 64 characters"),
    ):
        with pytest.raises(SettingsError, match=f"{path}(:1)?: .*{why}"):
            load({}, file=path, environ={})


@pytest.mark.parametrize("name", ["state_dir", "socket", "munge_socket", "pilot_log_dir"])
@pytest.mark.parametrize("value", ["", "a\0b", "a\x1b[31mb", "a\ud800b", "a\nb"])
def test_a_path_is_a_name_that_a_file_can_have(nowhere: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"command line: {name}: .*: (empty|contains the control)"):
        load({name: value}, environ=nowhere)


def test_a_message_repeats_so_much_of_a_value(nowhere: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as error:
        load({"poll_s": "x" * 100_000}, environ=nowhere)
    assert len(str(error.value)) < 500 and "(100,002 characters)" in str(error.value)
