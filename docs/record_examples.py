"""Runs an example of each command against a real daemon, and writes what it printed into docs/examples.json.

python docs/record_examples.py docs/examples.json

In some minutes, or with a further word (daemon, lsf, files) a part of them: a local daemon trains
trainers/digits.yaml and a small study, and commands that ask a batch system ask an emulated LSF. Names of
this machine are replaced; figures are as they were.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
USER = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()  # noqa: S607
MOST_LINES, MOST_COLUMNS = 12, 100
PATIENCE_S = 300.0
STUDY = """\
name: rates
trainer:
  command: [python, digits.py, --lr, "{lr}"]
  workdir: trainers
  nodes: {max: 1}
space: {lr: {float: [0.01, 0.2], log: true}}
metric: accuracy
direction: maximize
trials: 4
budget: 9000
"""
SEARCH = "halving: {trials: 32, least: 1, most: 50, eta: 3}\n"
PROFILE = """\
curve: [[1, 500], [2, 950], [4, 1700], [8, 2800], [16, 4000]]
iteration_samples: 30000
node_workers: 4
nodes: 128
scale: 15
init: {mean: 15, std: 3}
billing: {price: 12.24, minimum_s: 60, unit: $}
"""
JOBS = """\
- name: vision
  command: [python, train.py]
  nodes: {min: 1, max: 32}
  work: {samples: 2000000000}
  curve: [[1, 800], [2, 1550], [4, 2950], [8, 5500], [16, 9600], [32, 15000]]
  rescale: {up: {stall_s: 0.1, init_s: 5}, down: {stall_s: 0.1}}
"""
GRID = """\
base: {log: idle.csv, workload: jobs.yaml}
grid: {allocator: [knapsack, equal], t_fwd_s: [60, 120]}
"""
SWF = "; MaxProcs: 4\n" + "".join(
    f"{n} {600 * n} 0 {900 + 60 * n} {1 + n % 3} -1 -1 {1 + n % 3} 1800 -1 1 1 1 1 1 1 -1 -1\n"
    for n in range(12)
)


class Recorder:
    """Runs commands in a folder of its own, as a user with a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.found = folder, dict[str, dict[str, str]]()
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("BFTRAINER_")},
            "HOME": str(folder / "home"),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "COLUMNS": str(MOST_COLUMNS),
            "OMP_NUM_THREADS": "1",
        }
        (folder / "home").mkdir()
        shutil.copytree(ROOT / "trainers", folder / "trainers")
        for name, text in {
            "rates.yaml": STUDY,
            "search.yaml": SEARCH,
            "profile.yaml": PROFILE,
            "jobs.yaml": JOBS,
            "grid.yaml": GRID,
            "jobs.swf": SWF,
        }.items():
            (folder / name).write_text(text)

    def run(
        self, line: str, more: Mapping[str, str] | None = None, *, lines: int = MOST_LINES, begin: str = ""
    ) -> None:
        """Run a line, and keep it as the example of its command, or what it printed from `begin` on."""
        print(f"$ {line}", flush=True)
        done = subprocess.run(
            shlex.split(line),
            check=False,
            cwd=self.folder,
            env=self.environ | (more or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
        before, found, rest = done.stdout.partition(f"\n{begin}" if begin else "\n\0")
        self.keep(line, f"...\n{begin}{rest}" if found else before, lines)

    def keep(self, line: str, printed: str, lines: int = MOST_LINES) -> None:
        """Keep a line and what it printed as the example of its command."""
        said = self._plain(printed)
        print(said, flush=True)
        words = [word for word in shlex.split(line)[1:] if not word.startswith("-")]
        groups = ("admin", "lsf", "plan", "study", "trace")
        name = " ".join(words[: 2 if words[0] in groups else 1])
        rows = [row.rstrip() for row in said.rstrip().splitlines()]
        cut = rows if len(rows) <= lines else [*rows[: lines - 1], "..."]
        cut = [row if len(row) <= MOST_COLUMNS else f"{row[: MOST_COLUMNS - 3]}..." for row in cut]
        self.found[f"bftrainer {name}"] = {"command": line, "output": "\n".join(cut)}

    @contextmanager
    def running(self, line: str, *, until: Callable[[], bool], kept: bool = True) -> Iterator[None]:
        """A command in the background, until the block ends. What it has printed when it is there is kept."""
        print(f"$ {line} &", flush=True)
        log = self.folder / "printed.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                shlex.split(line),
                cwd=self.folder,
                env=self.environ,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                self.wait(until)
                if kept:
                    self.keep(line, log.read_text(), 6)
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(PATIENCE_S)

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + PATIENCE_S
        while not until():
            if time.monotonic() > deadline:
                raise TimeoutError("the condition never held")
            time.sleep(0.5)

    def ask(self, line: str) -> str:
        """What a command prints, without keeping it; "" if it fails."""
        done = subprocess.run(
            shlex.split(line), check=False, cwd=self.folder, env=self.environ, capture_output=True, text=True
        )
        return "" if done.returncode else done.stdout

    def _plain(self, text: str) -> str:
        """A text without names of this machine, and with the secret of a link left out."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
        text = text.replace(f"{self.folder}/home", "/home/ann").replace(str(self.folder), "/home/ann")
        text = text.replace(f"{ROOT}/", "/opt/bftrainer/").replace(str(BIN), "/opt/bftrainer/bin")
        text = re.sub(r"(?<=[#=])[-\w]{30,}", "...", text)
        text = text.replace(os.uname().nodename, "login1")
        return re.sub(rf"\b{USER}\b", "ann".ljust(len(USER)), text)


def on_files(told: Recorder) -> None:
    """Commands that need no daemon."""
    told.run("bftrainer trace synth --profile small --hours 48 idle.csv")
    told.run("bftrainer trace info idle.csv")
    told.run("bftrainer trace convert jobs.swf from-jobs.csv")
    told.run("bftrainer replay idle.csv --workload jobs.yaml --out run.json.gz")
    told.run("bftrainer sweep grid.yaml")
    told.run("bftrainer report run.json.gz --out report.html")
    told.run("bftrainer plan search search.yaml --deadline 10m --profile profile.yaml", lines=16)
    told.run("bftrainer plan size trainers/digits.yaml")
    told.run("bftrainer explain BFT-105")
    told.run("bftrainer try trainers/digits.yaml --steps 20", begin="digits: ")
    told.run("bftrainer demo trainers/digits.yaml --seconds 60", begin="n01 ")
    told.run("bftrainer study demo rates.yaml --seconds 60", begin="rung: ")


def on_lsf(told: Recorder) -> None:
    """Commands that ask a batch system: an emulated LSF."""
    place = told.folder / "lsf"
    emulator = [sys.executable, "-m", "lsf.emulator"]
    subprocess.run([*emulator, "up", "--dir", str(place)], check=True, cwd=ROOT)
    try:
        lines = subprocess.run(
            [*emulator, "env", "--dir", str(place)], check=True, cwd=ROOT, capture_output=True, text=True
        ).stdout
        exported = dict(re.findall(r"(?m)^export (\w+)=(.*?);?$", lines))
        more = {name: value.replace("$PATH", told.environ["PATH"]) for name, value in exported.items()}
        more["BFTRAINER_SCHEDULER"] = "lsf"
        told.run("bftrainer lsf check", more)
        told.run("bftrainer pilot --dry-run --node h1 --limit 3600", more)
        told.run("bftrainer record idle-nodes --every 1 --hours 0.001", more)
        told.run("bftrainer admin check", more)
    finally:
        subprocess.run([*emulator, "down", "--dir", str(place)], check=True, cwd=ROOT)


def on_daemon(told: Recorder) -> None:
    """Commands that ask the daemon: what it does with a trainer, then with a study."""
    (told.folder / "main-jobs").touch()
    line = "bftrainer daemon --scheduler local --main-jobs main-jobs"
    with told.running("bftrainer daemon --scheduler local", until=lambda: bool(told.ask("bftrainer pool"))):
        pass
    with told.running(line, until=lambda: "4 of 4" in told.ask("bftrainer pool"), kept=False):
        told.run("bftrainer submit trainers/digits.yaml")
        told.wait(lambda: "accuracy" in told.ask("bftrainer show digits"))
        told.run("bftrainer list")
        told.run("bftrainer show digits")
        told.run("bftrainer pool")
        told.run("bftrainer queue")
        told.run("bftrainer priority digits 2")
        told.run("bftrainer metrics digits -n 3")
        told.run("bftrainer logs digits -n 3")
        told.run("bftrainer events -n 3")
        told.run("bftrainer status")
        told.run("bftrainer admin pause")
        told.run("bftrainer admin impact")
        told.run("bftrainer admin resume")
        with told.running("bftrainer watch", until=_after(20.0)):
            pass
        with told.running("bftrainer web --no-browser", until=_after(3.0)):
            pass
        told.run("bftrainer cancel digits")
        on_study(told)
        told.run("bftrainer admin drain")


def on_study(told: Recorder) -> None:
    """Commands that ask about a study, from its begin to its end."""
    told.run("bftrainer study submit rates.yaml")
    told.run("bftrainer study pause rates")
    told.run("bftrainer study resume rates")
    told.run("bftrainer study priority rates 2")
    told.run("bftrainer study add rates --trials 1")
    told.wait(lambda: "accuracy" in told.ask("bftrainer study best rates"))
    told.run("bftrainer study list")
    told.run("bftrainer study show rates")
    told.wait(lambda: "completed" in told.ask("bftrainer study list"))
    told.run("bftrainer study best rates")
    told.run("bftrainer study export rates --to csv")
    told.run("bftrainer study mirror rates --url sqlite:///studies.db")
    told.ask("bftrainer study submit rates.yaml")
    told.run("bftrainer study cancel rates")


def _after(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


def main() -> None:
    """Record all into the file that the first argument names, or only what further ones say."""
    path, chosen = Path(sys.argv[1]), sys.argv[2:]
    ways = {"daemon": on_daemon, "lsf": on_lsf, "files": on_files}
    for way in chosen or ways:
        with tempfile.TemporaryDirectory(prefix="ann-") as name:
            told = Recorder(Path(name))
            ways[way](told)
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        text = json.dumps(dict(sorted((found | told.found).items())), indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
