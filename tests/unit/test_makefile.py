"""What the Makefile does before it runs tests."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TORCH_INDEX = ROOT / ".ci" / "torch_index.py"


def dry_run(target: str) -> str:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    command = ["make", "--dry-run", "--no-print-directory", target]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env=environ).stdout


def test_what_tests_need_is_installed_before_the_first_of_them_runs() -> None:
    said = dry_run("test")
    assert 0 < said.index("munged") < said.index("pytest")


def test_daemons_are_attacked_and_fuzzed_in_every_run_and_longer_in_the_night() -> None:
    for target, seconds in (("test", 60), ("nightly", 300)):
        said = dry_run(target)
        assert "tests/hostile" in said and f"FUZZ_SECONDS={seconds} " in said


def test_the_night_measures_what_main_jobs_notice() -> None:
    assert "slurm_impact.py --mix $mix --seeds 1 --again --check" in dry_run("nightly")


def test_the_night_runs_what_takes_longer_on_a_real_slurm() -> None:
    assert "-m nightly tests/cluster" in dry_run("nightly")


def test_the_night_runs_on_later_slurms_and_pythons_ci_on_one_for_a_while() -> None:
    said = dry_run("nightly")
    for slurm in (24, 26):
        assert f".ci/slurm-chroot {slurm} .venv/bin/python -m pytest" in said
        assert f".ci/slurm-chroot {slurm} .venv/bin/python benchmarks/slurm_impact.py" in said
    for chroot, python in ((24, "3.13"), (26, "3.14")):
        assert f".ci/slurm-chroot {chroot} build/python{python}/bin/python -m pytest" in said
    ci = (ROOT / ".ci" / "run").read_text()
    smoke = dry_run("smoke")
    assert "\nmake smoke\n" in ci and ".ci/slurm-chroot 26 .venv/bin/python -m pytest" in smoke
    assert ".ci/slurm-chroot 26 .ci/newest-python dist/" in smoke, "the wheel, on sid's Python"


def torch_index(url: str) -> tuple[str, str]:
    environ = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
    command = [sys.executable, str(TORCH_INDEX), url]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ, timeout=60)
    return done.stdout, done.stderr


def test_an_index_that_cannot_be_reached_is_tried_once() -> None:
    option, said = torch_index("http://127.0.0.1:9/whl/cpu")
    assert option == ""
    assert said.splitlines() == [
        "http://127.0.0.1:9/whl/cpu cannot be reached: PyTorch comes from pip's own index"
    ]


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Log nothing."""


def test_an_index_that_answers_is_used() -> None:
    with HTTPServer(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/whl/cpu"
        assert torch_index(url) == (f"--extra-index-url {url}\n", "")
        server.shutdown()
