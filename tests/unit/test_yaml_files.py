"""YAML that users name: aliases within bounds, and one line for all that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer import yaml_files
from bftrainer.yaml_files import YamlFileError, read_yaml

LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))


def refused(tmp_path: Path, text: bytes) -> str:
    path = tmp_path / "f.yaml"
    path.write_bytes(text)
    with pytest.raises(YamlFileError) as error:
        read_yaml(path, 1000)
    said = str(error.value)
    assert said.startswith(f"{path}:") and len(said.splitlines()) == 1 and len(said) < 400
    return said.removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LAUGHS.encode(), "7: too many values; shorten it"),
        (b"a: &a [*a]", "*a stands within itself"),
        (b"a: *nosuch", "1: not YAML: nothing before it is named *nosuch"),
        (b"[" * 100_000, "nested too deeply, more than 32 deep"),
        (b"{a: " * 100_000, "nested too deeply"),
        (b"a: [b\n", "2: not YAML"),
        (
            b"a: " + b"9" * 5000,
            "1: '9999999999999999999999999999999999999999'... is no value: a number has at most",
        ),
        (b"{[1]: 2}", "1: a key must be a plain word"),
        (b"a: 1\n<<: 5", "2: not YAML: << takes a mapping, or a list of mappings"),
        (b"a: 1\na: 2", "2: 'a' is given twice; keep one of them"),
        (b"a\x00b", "not YAML"),
        (b"\xff\xfe\x00", " 'utf-8' codec"),
        (b"a: 1\n---\nb: 2\n", "2: not YAML: but found another document"),
        (b"a: !!python/object/apply:os.system [id]", "the tag 'tag:yaml.org,2002:python"),
        (b'a: !!int ""', "the tag"),
        (b"a: !!timestamp x", "the tag"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, text: bytes, words: str) -> None:
    assert words in refused(tmp_path, text)


def test_aliases_and_plain_values_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(
        "a: &a [1, 2.5, null]\nb: *a\nc: {<<: {d: 1, e: 2}, d: no}\nf: {<<: [{d: 1}, {d: 2, e: 3}]}\n"
    )
    assert read_yaml(path, 1000) == {
        "a": [1, 2.5, None],
        "b": [1, 2.5, None],
        "c": {"d": "no", "e": 2},
        "f": {"d": 1, "e": 3},
    }
    path.write_text("")
    assert read_yaml(path, 1000) is None


def test_values_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_files, "MAX_VALUES", 7)
    path = tmp_path / "f.yaml"
    path.write_text("a: &a [1, 2]\nb: 3\n")
    assert read_yaml(path, 1)
    assert "2: too many values" in refused(tmp_path, b"a: &a [1, 2]\nb: *a\n")
