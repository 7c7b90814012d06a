"""Whatever file a command is given, it ends with lines that say what is wrong: no traceback, no wait."""

from __future__ import annotations

import gzip
import lzma
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bftrainer.cli import app
from bftrainer.cli.shared.failures import OURS, tell

LOG = "idle_start,idle_end,node\n0,100,n1\n5,90,n2\n"
JOBS = "job,Tcup,Tcdw,Jmin,Jmax,Pmax,Tsub,model\na,1,1,1,2,100,1970-01-01T00:00:10,m\n"
CURVES = "model,nodes,images_per_s\nm,1,10\nm,2,15\n"
SPEC = "name: x\ncommand: [python, x.py]\nnodes: {max: 2}\n"
STAGES = "stages: [{trials: 2, iterations: 5}]\n"
PROFILE = "curve: [[1, 10]]\n"
GOOD = {
    "search.yaml": STAGES,
    "profile.yaml": PROFILE,
    "log.csv": LOG,
    "jobs.csv": JOBS,
    "curves.csv": CURVES,
    "spec.yaml": SPEC,
}

COMMANDS = [
    ["trace", "info", "ODD"],
    ["trace", "convert", "ODD", "out.csv"],
    ["trace", "convert", "log.csv", "folder/ODD"],
    ["replay", "ODD", "--workload", "jobs.csv", "--curves", "curves.csv"],
    ["replay", "log.csv", "--workload", "ODD", "--curves", "curves.csv"],
    ["replay", "log.csv", "--workload", "ODD.yaml"],
    ["replay", "log.csv", "--workload", "jobs.csv", "--curves", "ODD"],
    ["replay", "log.csv", "--workload", "jobs.csv", "--curves", "curves.csv", "--config", "ODD"],
    ["replay", "log.csv", "--workload", "jobs.csv", "--curves", "curves.csv", "--node-classes", "ODD"],
    ["report", "ODD", "--out", "out.html"],
    ["plan", "ODD", "--deadline", "1h", "--profile", "profile.yaml"],
    ["plan", "search.yaml", "--deadline", "1h", "--profile", "ODD"],
    ["plan", "search.yaml", "--deadline", "1h", "--profile", "profile.yaml", "--pool", "ODD"],
    ["sweep", "ODD", "--jobs", "1", "--out", "out"],
    ["sweep", "ODD", "--config", "ODD", "--out", "out"],
    ["submit", "ODD", "--state-dir", "nosuch"],
    ["submit", "spec.yaml", "--state-dir", "ODD"],
    *([*words, "--config", "ODD"] for words in (["list"], ["pool"], ["events"], ["status"], ["show", "x"])),
    *(
        [*words, "--state-dir", "ODD"]
        for words in (["list"], ["logs", "x"], ["cancel", "x"], ["admin", "pause"])
    ),
    ["events", "--trainer", "ODD", "--state-dir", "nosuch"],
    ["pilot", "--dry-run", "--config", "ODD", "--scheduler", "local"],
    ["demo", "ODD", "--keep", "folder"],
    ["daemon", "--config", "ODD", "--scheduler", "nosuch"],
]
"""Every command that reads files or asks a daemon; ODD stands for what is odd."""

NAMES = [
    *("nosuch", "", ".", "..", "folder", "fifo", "loop", "dangling", "locked", "/dev/zero", "/dev/null"),
    *("/proc/self/mem", "a" * 300, "a/" * 3000, "a\0b", "\udcff", "\ud800", "\x1b]0;x\x07", "-"),
]
DEEP = 4000
YAMLS = [
    *(
        "[" * DEEP,
        "{a: " * DEEP,
        "- " * DEEP,
        "a: " + "9" * 5000,
        "[" + "9" * 5000 + "]",
        "[]",
        "{}",
        "7",
        "~",
    ),
    *("a: &a [*a]", "a: *b", "? [1]\n: 2", "<<: 5", "a: !!int ''", "a: 2020-99-99", "null: 1"),
    *('"\\e[31m": "\\e]0;x\\a"', 'state_dir: "\\0"', "state_dir: ''", "poll_s: .nan", "poll_s: 1e400"),
    *(
        "base: {log: [1]}",
        "grid: {log: 5}",
        "base: {log: log.csv}\ngrid: {seed: [[[1]]]}",
        "runs: [{log: .inf}]",
    ),
    SPEC + "curve: [[1, .nan]]\n",
    "- name: x\n  command: [x]\n  nodes: {max: 1000000000000}\n  work: {samples: 1e400}\n",
]
TABLES = [
    *("1,2,3\n" * 60, '"' * 9999, LOG + "nan,1e999,\x1b[31m\n" * 9, JOBS + "x," * 7 + "\n"),
    CURVES + "m,-1,nan\n",
    "; MaxProcs: -5\n1 0 0 1e300 4 -1 -1 4 10 -1 1 1 1 1 1 1 -1 -1\n",
    "JobID|Start|End|NodeList\n1|0|10|n[1-999999999]\n",
    "1e400\n----\nnan\n----\n",
]
CONTENTS = [
    *(b"", b"\0", b"\xff\xfe\0", b"\xef\xbb\xbf", b"SQLite format 3\0" + b"\0" * 100, b"\x1f\x8b\x08"),
    *(text.encode() for text in (*YAMLS, *TABLES)),
]
PACKED = [
    *(gzip.compress(text) for text in CONTENTS),
    lzma.compress(b"x" * 100)[:-9],
    gzip.compress(b"x")[:-5],
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with good files and odd ones, which is the present one."""
    folder = tmp_path_factory.mktemp("place")
    for name, text in GOOD.items():
        (folder / name).write_text(text)
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("/nosuch/x")
    (folder / "locked").touch(mode=0)
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


def run(words: list[str]) -> None:
    """A command ends in time, as it should, and prints nothing that a terminal obeys."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"{words} takes too long")

    own = {"XDG_CONFIG_HOME": "nosuch", "BFTRAINER_SITE_CONFIG": "nosuch", "TMPDIR": "folder"}
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)  # also on a machine that is busy
    try:
        done = CliRunner().invoke(app, words, env=own)
        error = done.exception
        if error is not None and not isinstance(error, SystemExit):
            assert isinstance(error, Exception), error
            assert tell(error) != OURS, (words, error)
            assert len(str(error)) < 20_000, (words, len(str(error)))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert "Traceback" not in done.output, (words, done.output)
    assert "\x1b" not in done.output.replace("File '\x1b", ""), (words, done.output)  # `main` escapes click's


FAST = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@FAST
@given(command=st.sampled_from(COMMANDS), name=st.sampled_from(NAMES))
def test_an_odd_name_ends_in_an_error(place: Path, command: list[str], name: str) -> None:
    run([word.replace("ODD", name) for word in command])


@FAST
@given(
    command=st.sampled_from(COMMANDS), content=st.sampled_from([*CONTENTS, *PACKED]) | st.binary(max_size=99)
)
def test_odd_content_ends_in_an_error(place: Path, command: list[str], content: bytes) -> None:
    for name in {word for word in command if "ODD" in word and "/" not in word}:
        (place / name).unlink(missing_ok=True)
        (place / name).write_bytes(content)
    run(command)
