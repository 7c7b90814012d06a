"""Trainer specs: what a good one says, what a bad one is told, and that nothing else ever escapes."""

from __future__ import annotations

import gc
import os
import tracemalloc
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.errors import BftrainerError
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import Cost, RescaleCosts, Scalability, TrainerSpec
from bftrainer.spec import located_yaml
from bftrainer.spec import parse as spec_files
from bftrainer.spec.located_yaml import SPEC, SpecError
from bftrainer.spec.parse import check_files, parse, parse_many

GOOD = """\
name: digits-8
command: [python, train.py, --lr, "0.1"]
nodes: {min: 2, max: 8}
"""


def read(text: str) -> TrainerSpec:
    return parse(text, "spec.yaml", Path("/base"))


def load(path: Path) -> TrainerSpec:
    return parse(spec_files.read(path), str(path), path.parent)


def refused(text: str) -> list[str]:
    with pytest.raises(SpecError) as error:
        read(text)
    return str(error.value).splitlines()


# --- good specs ----------------------------------------------------------------------------------


def test_the_least_spec() -> None:
    assert read("name: a\ncommand: [run]\nnodes: {max: 4}\n") == TrainerSpec(
        name="a", command=("run",), n_min=1, n_max=4, workdir="/base"
    )


def test_everything_that_a_spec_can_say() -> None:
    spec = read(
        GOOD
        + """\
work: {samples: 1000000}
curve: [[4, 30], [1, 10.5]]
rescale:
  up: {stall_s: 18, init_s: 2.5}
  down: {stall_s: 12}
scalability: given
curves: {gpu: [[2, 400], [1, 250]], small: []}
weight: 2
priority: 3
workdir: runs
env: {OMP_NUM_THREADS: "4", A: b}
checkpoint: {dir: /ckpt, every_s: 30}
"""
    )
    assert spec == TrainerSpec(
        name="digits-8",
        command=("python", "train.py", "--lr", "0.1"),
        n_min=2,
        n_max=8,
        samples=1_000_000,
        curve=((1, 10.5), (4, 30.0)),
        costs=RescaleCosts(up=Cost(stall_s=18.0, init_s=2.5), down=Cost(stall_s=12.0)),
        scalability=Scalability.GIVEN,
        curves=(("gpu", ((1, 250.0), (2, 400.0))), ("small", ())),
        weight=2.0,
        priority=3.0,
        workdir="/base/runs",
        env=(("A", "b"), ("OMP_NUM_THREADS", "4")),
        checkpoint_dir="/ckpt",
        checkpoint_every_s=30.0,
    )


@pytest.mark.parametrize(
    ("nodes", "least", "most", "sizes"),
    [
        ("{sizes: [8, 1, 2, 4]}", 1, 8, AllowedSizes(listed=(1, 2, 4, 8))),
        ("{sizes: [3]}", 3, 3, AllowedSizes(listed=(3,))),
        ("{min: 2, max: 16, multiple_of: 2}", 2, 16, AllowedSizes(multiple_of=2)),
        ("{max: 16, multiple_of: 4}", 4, 16, AllowedSizes(multiple_of=4)),
        ("{max: 16, multiple_of: 1}", 1, 16, AllowedSizes()),
    ],
)
def test_sizes_are_listed_or_multiples(nodes: str, least: int, most: int, sizes: AllowedSizes) -> None:
    spec = read(GOOD.replace("{min: 2, max: 8}", nodes))
    assert (spec.n_min, spec.n_max, spec.sizes) == (least, most, sizes)


@pytest.mark.parametrize(("given", "workers"), [("auto", 0), ("1", 1), ("4", 4), ("1024", 1024)], ids=str)
def test_a_node_runs_a_worker_for_each_gpu_or_as_many_as_are_asked_for(given: str, workers: int) -> None:
    text = GOOD.replace("{min: 2, max: 8}", f"{{min: 2, max: 8, workers: {given}}}")
    assert parse(text, "spec.yaml", Path()).workers == workers
    assert parse(GOOD, "spec.yaml", Path()).workers == 0


@pytest.mark.parametrize("given", ["0", "-1", "1025", "many", "1.5", "true", '"4"', "[1]", "null"])
def test_other_numbers_of_workers_are_told_with_what_to_give(given: str) -> None:
    (told,) = refused(GOOD.replace("{min: 2, max: 8}", f"{{min: 2, max: 8, workers: {given}}}"))
    assert told.startswith("spec.yaml:3: nodes.workers: ") and told.endswith(
        " is no number of workers. Give auto, for one on each GPU of a node, or a number from 1 to 1024 "
        "(bftrainer explain BFT-630)"
    )


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("{sizes: [1, 2], max: 4}", "max: 4 beside sizes: [1, 2]. Leave max out, the sizes say all"),
        ("{sizes: [2, 4], multiple_of: 2}", "multiple_of: 2 beside sizes: [2, 4]. Leave multiple_of out"),
        ("{sizes: [1, 2, 1]}", "sizes: 1 occurs 2 times. Keep one of them"),
        ("{min: 1}", "there is neither max nor sizes. Add max: N, or sizes such as [1, 2, 4, 8]"),
        ("{min: 3, max: 8, multiple_of: 2}", "min 3 is no multiple of 2. Give 2 or 4"),
        ("{min: 1, max: 8, multiple_of: 2}", "min 1 is no multiple of 2. Give 2"),
        ("{max: 15, multiple_of: 4}", "max 15 is no multiple of 4. Give 12 or 16"),
        ("{max: 15, multiple_of: 16}", "multiple_of 16 is above max 15. Raise max, or lower multiple_of"),
        ("{max: 999999, multiple_of: 7000}", "max 999999 is no multiple of 7000. Give 994000"),
    ],
)
def test_sizes_that_make_no_sense_are_told_with_a_remedy(nodes: str, said: str) -> None:
    (told,) = refused(GOOD.replace("{min: 2, max: 8}", nodes))
    assert told.startswith(f"spec.yaml:3: nodes: {said}")


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (
            "{sizes: []}",
            "nodes.sizes: list should have at least 1 item after validation, not 0; give at least one",
        ),
        ("{sizes: [0, 2]}", "nodes.sizes.0: 0: input should be greater than or equal to 1; raise it"),
        ("{sizes: [1, two]}", "nodes.sizes.1: 'two': input should be a valid integer; give a whole number"),
        ("{sizes: 4}", "nodes.sizes: 4: input should be a valid list; give a list"),
        ("{max: 2000000}", "nodes.max: 2000000: input should be less than or equal to 1000000; lower it"),
        ("{max: 8, multiple_of: 0}", "nodes.multiple_of: 0: input should be greater than or equal to 1"),
        ("{max: 8, multiples_of: 2}", "unknown key 'nodes.multiples_of'; did you mean 'multiple_of'?"),
    ],
)
def test_sizes_that_are_none_are_told_with_their_place(nodes: str, said: str) -> None:
    (told,) = refused(GOOD.replace("{min: 2, max: 8}", nodes))
    assert told.startswith(f"spec.yaml:3: {said}")


def test_work_until_exit_is_the_default_and_can_be_said() -> None:
    assert read(GOOD + "work: until_exit\n") == read(GOOD)
    assert read(GOOD).samples is None


def test_without_a_curve_there_is_nothing_to_go_by() -> None:
    assert read(GOOD).scalability is Scalability.AUTO
    (said,) = refused(GOOD + "scalability: given\n")
    assert "there is no curve to go by. Give one, or leave scalability out" in said
    (said,) = refused(GOOD + "scalability: fixed\n")
    assert said.startswith("spec.yaml:4: scalability: 'fixed': input should be 'auto' or 'given'")


def test_relative_paths_count_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(GOOD + "workdir: w\ncheckpoint: {dir: ../c}\n")
    spec = load(path)
    assert spec.workdir == str(tmp_path.resolve() / "w")
    assert spec.checkpoint_dir == str(tmp_path.resolve().parent / "c")


# --- bad specs: file, line, value, remedy --------------------------------------------------------


@pytest.mark.parametrize(
    ("added", "line", "said"),
    [
        ("weigth: 2", 4, "unknown key 'weigth'; did you mean 'weight'?"),
        ("checkpoint:\n  evry_s: 2", 5, "unknown key 'checkpoint.evry_s'; did you mean 'every_s'?"),
        (
            "rescale: {up: {stal_s: 1}, down: {}}",
            4,
            "unknown key 'rescale.up.stal_s'; did you mean 'stall_s'?",
        ),
        ("work: {sampels: 1, samples: 3}", 4, "unknown key 'work.sampels'; did you mean 'samples'?"),
        ("zzz: 1", 4, "unknown key 'zzz'; valid keys: name, command, nodes, gpus, launcher, work"),
        (
            "work: until_done",
            4,
            "work: 'until_done': input should be 'until_exit'; give 'until_exit' or 'samples: N'",
        ),
        ("partial: half", 4, "partial: 'half': input should be a valid boolean; give true or false"),
        ("partial: {lr: half}", 4, "partial.lr: 'half': input should be 'share' or 'none'"),
        ("work: {samples: 1.5}", 4, "work.samples: 1.5: input should be a valid integer"),
        ("work: {samples: 0}", 4, "work.samples: 0: input should be greater than or equal to 1"),
        ("work: {samples: 1, progress: 1}", 4, "give samples: N, or progress: N"),
        ("work: {}", 4, "give samples: N, or progress: N"),
        ("work: {progress: 0}", 4, "work.progress: 0: input should be greater than or equal to 1"),
        ("work: {progress: 9}\nlauncher: torchrun", 1, "only elastic.Run (launcher: native) knows"),
        ("weight: heavy", 4, "weight: 'heavy': input should be a valid number; give a number"),
        ("weight: 0", 4, "weight: 0: input should be greater than 0"),
        ("weight: .nan", 4, "weight: nan: input should be a finite number"),
        ("weight: true", 4, "weight: True: input should be a valid number"),
        (
            "env: {PORT: null}",
            4,
            "env.PORT: None: input should be a valid string; quote it if it is meant as text",
        ),
        ("env: {1A: x}", 4, "env: '1A' is not a variable that a spec can set. Rename it"),
        ("env: {BFTRAINER_X: x}", 4, "env: 'BFTRAINER_X' is not a variable that a spec can set. Rename it"),
        ('workdir: "a\\0b"', 4, "workdir: contains the control character '\\x00' at position 1: remove it"),
        ("curve: [[1, 5], [1, 6]]", 4, "curve: no curve has two points for 1 nodes. Give points"),
        ("curve: [[1.5, 6]]", 4, "curve: 1.5 nodes: node counts are whole numbers"),
        ("curve: []", 4, "curve: no curve has no point. Give points"),
        ("curve:\n- [1, 5]\n- [2]", 6, "curve.1: list should have at least 2 items"),
        ("curve: [[1, -5]]", 4, "curve: no curve has -5.0 samples/s on 1 nodes. Give points"),
        (
            "curves: 3",
            4,
            "curves: 3: input should be a valid dictionary; give a list of points for each class",
        ),
        ("curves:\n  gpu: 3", 5, "curves.gpu: 3: input should be a valid list; give a list"),
        (
            "curves:\n  gpu: [[1, 5], [1, 6]]",
            5,
            "curves.gpu: no curve has two points for 1 nodes. Give points",
        ),
        ("curves: {gpu: [[1, 5]],\n  cpu: [[1.5, 6]]}", 5, "curves.cpu: 1.5 nodes: node counts are whole"),
        ("curves:\n  gpu:\n  - [1, 5]\n  - [2]", 7, "curves.gpu.1: list should have at least 2 items"),
        ("curves:\n  gpu: [[1, 5, 6]]", 5, "curves.gpu.0: list should have at most 2 items"),
        ("priority: 0", 4, "priority: 0: input should be greater than 0"),
        ("priority: high", 4, "priority: 'high': input should be a valid number; give a number"),
        ("user: root", 4, "unknown key 'user'"),
        ("rescale: {up: {}}", 4, "'rescale.down' is missing; add it"),
        (
            "rescale: {up: {}, down: {init_s: 3}}",
            4,
            "down.init_s is 3.0, but shrinking has no new nodes. Leave it out",
        ),
        (
            "rescale: {up: {stall_s: -1}, down: {}}",
            4,
            "rescale.up.stall_s: -1: input should be greater than or equal",
        ),
        ("checkpoint: {every_s: 0}", 4, "checkpoint.every_s: 0: input should be greater than 0"),
        ("name: b", 4, "'name' is given twice; keep one of them"),
        ("env:\n  A: x\n  B: y\n  A: z", 7, "'A' is given twice; keep one of them"),
        ("workdir: &w x\nenv: {A: *w}", 5, "*w: write the value out"),
        ("? [a, b]\n: 1", 4, "a key must be a plain word"),
        ("weight: [1", 5, "not YAML: did not find expected ',' or ']'"),
        (
            "weight: !!python/name:os.system",
            4,
            "the tag 'tag:yaml.org,2002:python/name:os.system': leave it out",
        ),
    ],
)
def test_an_error_says_where_what_and_what_to_do(added: str, line: int, said: str) -> None:
    assert any(
        text.startswith(f"spec.yaml:{line}: {said}")
        or (text.startswith(f"spec.yaml:{line}: ") and said in text)
        for text in refused(GOOD + added + "\n")
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "spec.yaml:1: empty; a spec needs at least name, command and nodes"),
        ("# nothing\n", "spec.yaml:1: empty; a spec needs at least name, command and nodes"),
        ("just words\n", "spec.yaml:1: 'just words' is no spec. Begin with 'name: ...'"),
        ("[1, 2]\n", "spec.yaml:1: [1, 2] is no spec. Begin with 'name: ...'"),
        (
            GOOD.replace("digits-8", "Digits 8"),
            "spec.yaml:1: name: 'Digits 8' is no name of a trainer. Use lower-case letters",
        ),
        (
            GOOD.replace("digits-8", "../etc"),
            "spec.yaml:1: name: '../etc' is no name of a trainer. Use lower-case letters",
        ),
        (GOOD.replace("digits-8", "a" * 64), f"spec.yaml:1: name: '{'a' * 64}' is no name"),
        (GOOD.replace("digits-8", "8"), "spec.yaml:1: name: 8: input should be a valid string; quote it"),
        (GOOD.replace("[python", "[[python]"), "spec.yaml:2: command.0: input should be a valid string"),
        (
            GOOD.replace("min: 2", "min: 9"),
            "spec.yaml:3: nodes: min 9 is above max 8. Raise max, or lower min",
        ),
        (
            GOOD.replace("min: 2", "min: 0"),
            "spec.yaml:3: nodes.min: 0: input should be greater than or equal to 1",
        ),
        (GOOD.replace("min: 2", "min: '2'"), "spec.yaml:3: nodes.min: '2': input should be a valid integer"),
        (GOOD.replace("{min: 2, max: 8}", "0"), "spec.yaml:3: nodes.max: 0: input should be greater than"),
        (
            GOOD.replace("{min: 2, max: 8}", "2-8"),
            "spec.yaml:3: nodes: '2-8': expected further keys: min, max, multiple_of, sizes, workers, such "
            "as nodes: {min: 1, max: 4}",
        ),
        ("command: [a]\nnodes: {max: 1}\n", "spec.yaml:1: 'name' is missing; add it"),
        (
            GOOD.replace("digits-8", "a: b: c"),
            "spec.yaml:1: not YAML: mapping values are not allowed in this context",
        ),
        (GOOD + "---\n" + GOOD, "spec.yaml:4: not YAML: but found another document"),
    ],
)
def test_whole_specs_that_are_none(text: str, said: str) -> None:
    assert any(line.startswith(said) for line in refused(text)), refused(text)


def test_all_errors_come_at_once_in_the_order_of_lines() -> None:
    told = refused("name: UPPER\ncommand: []\nnodes: {max: 0}\nweigth: 3\n")
    assert [text.split(": ")[0] for text in told] == [f"spec.yaml:{i}" for i in (1, 2, 3, 4)]


def test_too_big() -> None:
    most = SPEC.kb * 1000
    (told,) = refused(GOOD + "#" * most)
    assert told.startswith(f"spec.yaml: {len(GOOD) + most} bytes; a spec has at most 32 kB: shorten it")
    assert read(GOOD + "#" * (most - len(GOOD))).name == "digits-8"


DEEP = ("- " * 5000 + "a", "[" * 5000)  # some versions of libyaml refuse the latter


@pytest.mark.parametrize("text", DEEP)
def test_nested_too_deeply(text: str) -> None:
    (told,) = refused(text)
    assert told.startswith("spec.yaml:1: nested too deeply, more than 16 deep: write it flatter")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no-such\.yaml"):
        load(tmp_path / "no-such.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(SpecError, match=r"binary\.yaml"):
        load(binary)
    assert issubclass(SpecError, BftrainerError)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.yaml"
    os.mkfifo(fifo)
    for path in (fifo, Path("/dev/zero"), tmp_path):
        with pytest.raises(SpecError, match=f"{path}: .*(not a regular file; write it to one|directory)"):
            load(path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(SpecError) as error:
        load(huge)
    assert str(error.value).startswith(f"{huge}: {2**40} bytes; at most 32 kB are read: shorten it")
    full = tmp_path / "full.yaml"
    full.write_text(GOOD + "#" * (SPEC.kb * 1000 - len(GOOD)))
    assert load(full).name == "digits-8"


# --- lists of specs ------------------------------------------------------------------------------


def test_many_specs_keep_their_order() -> None:
    text = "\n".join(f"- name: t{i}\n  command: [run]\n  nodes: {{max: {i}}}" for i in (3, 1, 2))
    assert [(s.name, s.n_max) for s in parse_many(text, "all.yaml")] == [("t3", 3), ("t1", 1), ("t2", 2)]
    assert parse_many("[]", "all.yaml") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD, "all.yaml:1: all.yaml is no list of specs. Begin each with '- name: ...'"),
        (
            "- {name: a, command: [x], nodes: {max: 1}}\n- {name: a, command: [x], nodes: {max: 1}}",
            "all.yaml:2: a second spec 'a'. Give each a name",
        ),
        (
            "- name: a\n  command: [x]\n  nodes:\n    max: 0",
            "all.yaml:4: nodes.max: 0: input should be greater",
        ),
        ("- name: a\n  command: [x]\n  nodes: {max: 1}\n  nods: 1", "all.yaml:4: unknown key 'nods'"),
        ("- just words", "all.yaml:1: 'just words' is no spec"),
        ("", "all.yaml:1: empty"),
    ],
)
def test_bad_lists(text: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_many(text, "all.yaml")
    assert str(error.value).startswith(said)


# --- nothing but SpecError escapes ---------------------------------------------------------------


def survives(text: str) -> None:
    """Parsing ends in a spec or in a SpecError whose every line names the file."""
    for attempt in (lambda: [read(text)], lambda: parse_many(text, "spec.yaml")):
        try:
            specs = attempt()
        except SpecError as error:
            assert str(error).startswith("spec.yaml")
        else:
            assert all(isinstance(spec, TrainerSpec) for spec in specs)


def test_only_decimal_numbers_are_numbers() -> None:
    spec = read(GOOD + "weight: 2.5e-1\nwork: {samples: 10}\ncurve: [[1, 1e9], [2, +.2e10]]\n")
    assert (spec.weight, spec.curve) == (0.25, ((1, 1e9), (2, 2e9)))
    given = "env: {A: 017, B: 0x1F, C: 1_000, D: 1:30, E: 2026-01-01, F: yes, G: 0o17, H: 1e}"
    assert dict(read(GOOD + given).env) == {
        "A": "017",
        "B": "0x1F",
        "C": "1_000",
        "D": "1:30",
        "E": "2026-01-01",
        "F": "yes",
        "G": "0o17",
        "H": "1e",
    }
    for number in ("010", "0x10", "0o10", "1_0", "1:0"):
        (said,) = refused(GOOD.replace("max: 8", f"max: {number}"))
        wanted = f"spec.yaml:3: nodes.max: {number!r}: input should be a valid integer; give a whole number"
        assert said == f"{wanted} (bftrainer explain BFT-637)"
        (said,) = refused(GOOD + f"weight: {number}")
        assert "input should be a valid number; give a number in decimal digits" in said


@pytest.mark.parametrize("word", ["null", "~"])
def test_only_quoted_null_is_text(word: str) -> None:
    assert read(GOOD + f"env: {{A: '{word}'}}").env == (("A", word),)
    assert any("env.A" in said for said in refused(GOOD + f"env: {{A: {word}}}"))


@pytest.mark.parametrize("word", ["true", "True", "12", "1.50", ".inf", "1e-3", "+4", "9" * 60])
@pytest.mark.parametrize("quote", ["", "'"])
def test_words_and_variables_are_texts_as_they_are_written(word: str, quote: str) -> None:
    written = f"{quote}{word}{quote}"
    assert read(GOOD + f"env: {{A: {written}}}").env == (("A", word),)
    assert read(GOOD.replace('"0.1"', written)).command == ("python", "train.py", "--lr", word)
    (many,) = parse_many(f"- name: a\n  command: [x, {written}]\n  nodes: {{max: 1}}", "all.yaml")
    assert many.command == ("x", word)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("python train.py --lr 1e-3", ("python", "train.py", "--lr", "1e-3")),
        ("python train.py --note 'a b' --tag=\"c d\"", ("python", "train.py", "--note", "a b", "--tag=c d")),
        ("|\n  python train.py \\\n    --lr 1\n", ("python", "train.py", "--lr", "1")),
        (">\n  python train.py\n  --lr 1\n", ("python", "train.py", "--lr", "1")),
        ("python train.py --no '#1'", ("python", "train.py", "--no", "#1")),
        ("run", ("run",)),
    ],
)
def test_a_command_may_be_a_line(line: str, words: tuple[str, ...]) -> None:
    assert read(f"name: a\ncommand: {line}\nnodes: 4\n").command == words


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("python a.py > log", "'>' is for a shell, but no shell reads it; give a list of words"),
        ("cd runs && python a.py", "'&&' is for a shell"),
        ("python a.py --data $HOME/data", "'$' stands for something else in a shell"),
        ("python a.py --data ~/data", "'~' stands for something else in a shell"),
        ("python a.py 'b", "no closing quotation; close the quotation mark"),
        ("A=1 python a.py", "A=... sets a variable, which a shell does. Put it into env"),
        ("|\n  python a.py\n  python b.py\n", "it has several lines"),
        ("''", "list should have at least 1 item"),
    ],
)
def test_a_line_that_needs_a_shell_is_refused(line: str, said: str) -> None:
    told = refused(f"name: a\ncommand: {line}\nnodes: 4\n")
    assert any(said in one for one in told), told


def test_a_number_of_nodes_is_the_most() -> None:
    for key in ("nodes", "gpus"):
        spec = read(f"name: a\ncommand: run\n{key}: 4\n")
        assert (spec.n_min, spec.n_max, spec.gpus) == (1, 4, key == "gpus")
    assert refused("name: a\ncommand: run\nnodes: true\n")


def test_whole_numbers_may_have_an_exponent() -> None:
    assert read(GOOD + "work: {samples: 1e6}").samples == 1_000_000
    (said,) = refused(GOOD + "work: {samples: 1.5}")
    assert "work.samples: 1.5: input should be a valid integer" in said


@pytest.mark.parametrize(
    ("command", "there", "said"),
    [
        ("python tran.py", False, "spec.yaml:2: command: there is no 'tran.py' in"),
        ("python -u -X dev ./src/train.py", False, "there is no 'train.py' in"),
        ("bash run.sh", False, "there is no 'run.sh'"),
        ("./run", False, "there is no 'run'"),
        ("python train.py", True, ""),
        ("python -m train", True, ""),
        ("python /opt/of-the-nodes/train.py", True, ""),
        ("python {script}.py", True, ""),
        ("bash -c 'exec python tran.py'", True, ""),
        ("train", True, ""),
    ],
)
def test_a_script_that_is_not_there_is_refused_by_the_users_command(
    command: str, there: bool, said: str, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "train.py").touch()
    text = f'name: a\ncommand: "{command}"\nnodes: 4\n'
    spec = parse(text, "spec.yaml", tmp_path)
    if there:
        check_files(spec, text, Path("spec.yaml"))
        return
    with pytest.raises(SpecError) as error:
        check_files(spec, text, Path("spec.yaml"))
    assert said in str(error.value)


def test_a_command_has_no_empty_word() -> None:
    (said,) = refused(GOOD.replace("train.py", '""'))
    assert said.startswith("spec.yaml:2: command.1: the word is empty; leave it out")


@pytest.mark.parametrize(
    "added",
    [
        r'workdir: "\e[2J"',
        r'checkpoint: {dir: "a\nb"}',
        r'env: {A: "\x9b1m"}',
        r'curves: {"\e": [[1, 5]]}',
        r'"\e[31m": 1',
        r'workdir: "\u202Eabc"',
    ],
)
def test_what_a_terminal_would_obey_is_refused_and_escaped(added: str) -> None:
    (said,) = refused(GOOD + added)
    assert "contains the control character '\\" in said
    assert said.isprintable()


def test_a_command_and_an_environment_may_have_several_lines() -> None:
    spec = read(GOOD.replace("train.py", r'-c, "a\n\tb"') + 'env: {A: "x\\ny"}')
    assert spec.command[2] == "a\n\tb"
    assert spec.env == (("A", "x\ny"),)


def many(words: int, entries: int, points: int) -> str:
    """A spec of short values."""
    command = ", ".join(f"word-{n}" for n in range(words))
    env = ", ".join(f"KEY_{n}: value-{n}" for n in range(entries))
    curve = ", ".join(f"[{n + 1}, {1000.5 + n}]" for n in range(points))
    return f"name: a\ncommand: [{command}]\nnodes: 300\nenv: {{{env}}}\ncurve: [{curve}]\n"


@pytest.mark.parametrize(("words", "entries", "points"), [(250, 250, 80), (1, 250, 160), (250, 1, 240)])
def test_of_many_short_values_a_spec_takes_little_memory(words: int, entries: int, points: int) -> None:
    read(GOOD)  # what is loaded for the first one is no memory of this one
    tracemalloc.start()
    try:
        spec = read(many(words, entries, points))
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 100_000, "a daemon holds 20,000 of them"
    finally:
        tracemalloc.stop()
    assert len(spec.command) == words and len(spec.env) == entries


@pytest.mark.parametrize(("words", "entries", "points"), [(251, 1, 1), (1, 251, 1), (250, 250, 100)])
def test_of_more_short_values_a_spec_is_refused(words: int, entries: int, points: int) -> None:
    assert refused(many(words, entries, points))


@pytest.mark.parametrize("n", [500, 3000])
def test_of_many_errors_the_first_are_told(n: int) -> None:
    told = refused(GOOD + "".join(f"x{i}: 1\n" for i in range(n)))
    if n > SPEC.values // 2:
        assert told == ["spec.yaml:508: too many values; shorten it (bftrainer explain BFT-640)"]
    else:
        assert len(told) == 21
        assert told[0].startswith("spec.yaml:4: unknown key 'x0'")
        assert told[-1] == f"spec.yaml: ... and {n - 20} more; mend these first"


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("digits-8", "A" * 30_000),
        GOOD + "checkpoin" + "t" * 30_000 + ": 1",
        GOOD + "weight: " + "9" * 30_000,
        GOOD + "weight: " + "x" * 30_000,
        GOOD + "workdir: !" + "x" * 30_000 + " y",
        "x" * 30_000,
        GOOD + "x: &" + "x" * 30_000 + " 1\ny: *" + "x" * 1000,
    ],
)
def test_a_message_repeats_no_long_value(text: str) -> None:
    assert all(len(line) < 450 for line in refused(text))


@pytest.mark.parametrize(
    ("added", "said"),
    [
        (
            "curve: [" + ", ".join(f"[{i}, {i}]" for i in range(1, 258)) + "]",
            "curve: list should have at most",
        ),
        (
            "curves: {" + ", ".join(f"c{i}: [[1, 1]]" for i in range(65)) + "}",
            "curves: dictionary should have at most",
        ),
        ("env: {" + ", ".join(f"A{i}: a" for i in range(251)) + "}", "env: dictionary should have at most"),
        ("curve: [[1e300, 1]]", "curve: 1e+300 nodes: at most 1,000,000"),
        ("curve: [[1, 1e13]]", "curve: 1e+13 samples/s on 1 nodes; rates are from 1e-06 to 1e+12"),
        ("curve: [[1, 1e-300]]", "curve: 1e-300 samples/s on 1 nodes; rates are from"),
        ("weight: 1e9", "weight: 1000000000.0: input should be less than or equal to 1000000"),
    ],
)
def test_amounts_have_bounds(added: str, said: str) -> None:
    (told,) = refused(GOOD + added)
    assert told.startswith(f"spec.yaml:4: {said}")


def test_the_parser_in_python_serves_where_libyaml_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert located_yaml.FAST
    monkeypatch.setattr(located_yaml, "LOADER", yaml.SafeLoader)
    test_everything_that_a_spec_can_say()
    test_all_errors_come_at_once_in_the_order_of_lines()
    for text in DEEP:
        test_nested_too_deeply(text)
    for text in HOSTILE.values():
        survives(text)


HOSTILE = {
    "empty tagged int": GOOD + 'weight: !!int ""',
    "empty tagged float": GOOD + 'weight: !!float ""',
    "no bool": GOOD + "weight: !!bool maybe",
    "no timestamp": GOOD + "weight: !!timestamp now",
    "no date": GOOD + "weight: 2021-13-45",
    "infinitely many nodes": GOOD + "curve: [[.inf, 1]]",
    "no number of nodes": GOOD + "curve: [[.nan, 1]]",
    "huge decimal": GOOD + "weight: " + "9" * 5000,
    "huge hexadecimal": GOOD + "weight: 0x" + "f" * 5000,
    "huge hexadecimal in a curve": GOOD + "curve: [[0x" + "f" * 5000 + ", 1]]",
    "huge hexadecimal alone": "0x" + "f" * 5000,
    "huge sexagesimal": GOOD + "weight: 1" + ":1" * 300 + ".0",
    "no character": GOOD + r'workdir: "\UFFFFFFFF"',
    "half a character in a path": GOOD + r'workdir: "\ud800"',
    "half a character in a command": GOOD.replace("python", r'"\ud800"'),
    "half a character in the text": GOOD + "# \ud800",
    "key named like a form of work": GOOD + "_Work: 1",
    "key named like the other form": GOOD + "\"literal['until_exit']\": 1",
    "empty key": GOOD + "? \n: 1",
    "merge key": GOOD + "<<: {weight: 2}",
    "NUL": GOOD + "\0",
    "binary": GOOD + "weight: !!binary abc",
    "endless path": GOOD + "workdir: " + "a/" * 5000,
    "tagged mapping": GOOD + "env: !!set {A}",
    "value tag": GOOD + "weight: =",
    "unclosed brackets": "[" * 500,
    "closed brackets": "[" * 500 + "]" * 500,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_refused_in_the_same_way(text: str) -> None:
    survives(text)


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    survives(text)


@given(
    st.lists(
        st.sampled_from([*"{}[]:,-?&*!|>'\"#%@` \n\t", "name", "nodes", "max", "1", "a", "<<", "---"]),
        max_size=40,
    )
)
def test_any_punctuation(tokens: list[str]) -> None:
    survives("".join(tokens))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.dates()
NAMES = [
    *(
        "name",
        "command",
        "nodes",
        "work",
        "curve",
        "curves",
        "priority",
        "rescale",
        "weight",
        "workdir",
        "env",
        "checkpoint",
    ),
    *("min", "max", "samples", "up", "down", "stall_s", "init_s", "dir", "every_s"),
]
keys = st.sampled_from(NAMES) | st.text(max_size=5)
nested = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(nested)
def test_any_data(data: object) -> None:
    survives(yaml.safe_dump(data))


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(keys, nested, max_size=3), st.booleans())
def test_any_data_in_an_otherwise_good_spec(data: dict[str, object], flow: bool) -> None:
    survives(yaml.safe_dump({**yaml.safe_load(GOOD), **data}, default_flow_style=flow))


@pytest.mark.parametrize("launcher", ["torchrun", "horovod"])
@pytest.mark.parametrize("batch", ["{global: 24}", "{per_node: 8, lr: linear}", "{initial: 8, max: 64}"])
def test_a_batch_that_no_launcher_would_follow_is_refused(launcher: str, batch: str) -> None:
    assert read(GOOD + f"batch: {batch}\n").batch
    (said,) = refused(GOOD + f"launcher: {launcher}\nbatch: {batch}\n")
    assert f"scripts under launcher: {launcher} choose their batch themselves" in said


def test_which_ranks_are_told_to_stop_is_for_torchrun_to_say() -> None:
    assert read(GOOD + "launcher: torchrun\nstop_signal: all\n").stop_signal == "all"
    assert read(GOOD).stop_signal == ""
    (said,) = refused(GOOD + "stop_signal: all\n")
    assert "launcher: native stops and keeps workers in its own way. Leave stop_signal out" in said
    (said,) = refused(GOOD + "launcher: torchrun\nstop_signal: rank0\n")
    assert "'all' or 'rank_0'" in said


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("[torchrun, --standalone, --nproc-per-node, '1', train.py]", "torchrun"),
        ("[/opt/bin/accelerate, launch, train.py]", "accelerate"),
        ("[python, -m, torch.distributed.run, train.py]", "torch.distributed.run"),
    ],
)
@pytest.mark.parametrize("launcher", ["native", "torchrun"])
def test_a_command_whose_nodes_would_each_train_by_themselves_is_refused(
    command: str, named: str, launcher: str
) -> None:
    spec = f"name: t\ncommand: {command}\nlauncher: {launcher}\nnodes: "
    (said,) = refused(spec + "{max: 2}\n")
    assert f"{named} starts processes of its own" in said and "nodes: {max: 1}" in said
    assert read(spec + "{max: 1}\n").n_max == 1
    assert read(spec + "{max: 1}\n").workers == read(spec + "{max: 1, workers: 1}\n").workers == 1
    (said,) = refused(spec + "{max: 1, workers: 4}\n")
    assert f"{named} starts processes of its own, and nodes.workers: 4 would start it so often" in said


def test_how_much_a_restart_repeats_is_for_torchrun_to_say() -> None:
    assert read(GOOD + "launcher: torchrun\ncheckpoint: {interval_s: 40}\n").checkpoint_interval_s == 40.0
    assert read(GOOD).checkpoint_interval_s == 0.0
    (said,) = refused(GOOD + "checkpoint: {interval_s: 40}\n")
    assert "Leave checkpoint.interval_s out, it is for launcher: torchrun" in said


def test_a_wide_character_makes_a_value_wide_and_is_counted() -> None:
    def spec(wide: str, size: int) -> str:
        return f"name: a\ncommand: [a, '{'x' * size}{wide}']\nnodes: 1\n"

    assert read(spec("\U0001f600", 7000)) and read(spec("\xe4", 30_000))
    (told,) = refused(spec("\U0001f600", 9000))
    assert told.startswith("spec.yaml:2: with characters such as '\U0001f600', more than 32 kB of memory")
