"""The pilot as Slurm gets it."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import BftrainerError, SchedulerError
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.shared import pilot_job
from bftrainer.schedulers.shared.pilot_job import Template
from bftrainer.schedulers.shared.users import as_user, own_name
from bftrainer.schedulers.slurm.pilot import START_S, PilotResources, command, failure
from bftrainer.schedulers.slurm.queue.resources import Remaining
from bftrainer.schedulers.slurm.rows import SlurmJobEnd
from tests.support.slurm_samples import PILOT_JOB

TAG = "c0ffee" + "0" * 26
PILOT = Pilot(tag=TAG, node="n7")
KEPT = "s"
WINDOW = replace(PILOT_JOB, window=True)


def test_the_whole_command_line() -> None:
    assert command(PILOT_JOB, PILOT, 600.0) == [
        "sbatch",
        "--parsable",
        "--exclusive",
        "--no-requeue",
        f"--job-name=bftrainer-0a1b2c3d-{TAG}",
        f"--comment=bftrainer pilot {TAG}",
        "--partition=backfill",
        "--nodes=1",
        "--ntasks=1",
        "--nodelist=n7",
        "--mem=0",
        "--time=9",
        "--deadline=now+600",
        "--chdir=/",
        "--output=/state/50%%/logs/agent-n7.log",
        "--open-mode=append",
        "--constraint=ib",
    ]


def test_a_node_with_gpus_is_asked_for_with_all_of_them_unless_the_site_says_which() -> None:
    asked = "--gres=gpu:a100:4"
    assert asked in command(PILOT_JOB, PILOT, 600.0, PilotResources(gres="gpu:a100:4(S:0-1),nvme:1"))
    for own in ("--gres=gpu:1", "--gpus-per-node=2"):
        site = replace(PILOT_JOB, options=(own,))
        words = command(site, PILOT, 600.0, PilotResources(gres="gpu:a100:4"))
        assert [word for word in words if "gpu" in word] == [own]
    flags = replace(PILOT_JOB, options=("--gres-flags=disable-binding",))
    assert asked in command(flags, PILOT, 600.0, PilotResources(gres="gpu:a100:4")), "these ask for none"


def test_a_part_of_a_node_is_asked_for_with_its_cores_and_memory() -> None:
    part = Remaining(2, 500, (("a100", 2),))
    words = command(PILOT_JOB, PILOT, 600.0, PilotResources(gres="gpu:a100:4", part=part))
    assert {"--gres=gpu:a100:2", "--cpus-per-task=2", "--mem=500M"} <= set(words)
    assert "--exclusive" not in words and "--mem=0" not in words


def test_another_users_pilot_writes_no_log_where_that_user_may_not() -> None:
    job = replace(PILOT_JOB, qos="scavenger", account="lab")
    words = command(job, replace(PILOT, user="ann"), None)
    assert "--output=/dev/null" in words
    assert {"--qos=scavenger", "--account=lab"} <= set(words)
    assert not [word for word in words if word.startswith("--deadline")]


@pytest.mark.parametrize(
    ("limit_s", "max_s", "partition_s", "minutes"),
    [(None, 900.0, None, 15), (719.0, 1e7, None, 11), (None, 3600.0, 1800.0, 30), (59.0, 1e7, None, 1)],
)
def test_limits_are_whole_minutes_and_never_longer(
    limit_s: float | None, max_s: float, partition_s: float | None, minutes: int
) -> None:
    assert replace(PILOT_JOB, max_s=max_s).minutes(limit_s, start_s=START_S, most_s=partition_s) == minutes


@pytest.mark.parametrize("limit_s", [30.0, 60.0, 75.0, 600.0, 3600.0, 3614.0])
def test_a_pilot_that_starts_a_little_late_still_meets_its_deadline(limit_s: float) -> None:
    words = dict(word.split("=", 1) for word in command(PILOT_JOB, PILOT, limit_s) if "=" in word)
    deadline_s = float(words["--deadline"].removeprefix("now+"))
    assert deadline_s - 60 * int(words["--time"]) >= 15
    assert deadline_s <= max(limit_s, 75)


def test_without_preemption_a_pilot_ends_before_its_hole() -> None:
    assert WINDOW.minutes(119.0, start_s=START_S) == 1
    with pytest.raises(SchedulerError, match="there are 59 s"):
        WINDOW.minutes(74.0, start_s=START_S)
    assert WINDOW.minutes(None, start_s=START_S) == 24 * 60


@pytest.mark.parametrize(
    "pilot",
    [
        replace(PILOT, node="n1 --wrap=x"),
        replace(PILOT, node="-w"),
        replace(PILOT, tag=""),
        replace(PILOT, tag="eval"),
        replace(PILOT, tag=f"{TAG}\n"),
    ],
)
def test_odd_names_never_reach_a_command_line(pilot: Pilot) -> None:
    with pytest.raises(SchedulerError):
        command(PILOT_JOB, pilot, None)


@given(st.text(min_size=1).filter(lambda t: "\0" not in t and "\r" not in t))
def test_whatever_the_values_are_the_shell_takes_them_as_they_are(python: str) -> None:
    lines = replace(PILOT_JOB, python=python).script(PILOT, secret=KEPT)
    words = shlex.split(lines.rpartition("<<SECRET")[0], comments=True)
    assert words[:2] == ["exec", python]
    assert words[2:] == [
        *("-P", "-m", "bftrainer.agent", "--node", "n7", "--tag", TAG),
        *("--daemon", "10.0.0.1:4000", "--orphan-s", "60"),
    ]


STUB = """#!/bin/sh
read -r found
printf "%s\\n" "$found" "$*"
cat; env; cat /proc/$$/cmdline
"""
"""Prints what it reads and was called with, then all that others could see of it."""


@pytest.mark.parametrize("secret", ["0123abcd" * 8, "it's $HOME", '`ls` \\n $(ls) "', "SECRET"])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_script_gives_the_secret_to_the_standard_input_alone(
    tmp_path: Path, secret: str, shell: str
) -> None:
    python = tmp_path / "python"
    python.write_text(STUB)
    python.chmod(0o755)
    text = replace(PILOT_JOB, python=str(python)).script(PILOT, secret=secret)
    own = {"PATH": os.environ["PATH"]}
    done = subprocess.run([shell], input=text, capture_output=True, text=True, check=True, env=own)
    found, words, *rest = done.stdout.splitlines()
    assert found == secret and words.startswith("-P -m bftrainer.agent --node n7 ")
    assert secret not in "\n".join([words, *rest])
    assert secret not in " ".join(command(PILOT_JOB, PILOT, None))


@pytest.mark.parametrize(
    ("share", "given", "threads"),
    [(1.0, "", ""), (0.25, "", "4"), (1.0, "7", "7"), (0.25, "7", "7"), (0.001, "", "1"), (0.75, "", "6")],
)
def test_a_pilot_with_a_part_of_its_machine_has_threads_for_that_part(
    tmp_path: Path, share: float, given: str, threads: str
) -> None:
    python, nproc = tmp_path / "python", tmp_path / "nproc"
    python.write_text(STUB)
    nproc.write_text('#!/bin/sh\ntest "$1" = --all && echo 16 || echo 6\n')  # of 16 cores Slurm allows 6
    for program in (python, nproc):
        program.chmod(0o755)
    text = replace(PILOT_JOB, python=str(python)).script(PILOT, share, secret=KEPT)
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}"} | ({"OMP_NUM_THREADS": given} if given else {})
    done = subprocess.run(["sh"], input=text, capture_output=True, text=True, check=True, env=own)
    found = [line for line in done.stdout.splitlines() if line.startswith("OMP_NUM_THREADS=")]
    assert found == ([f"OMP_NUM_THREADS={threads}"] if threads else [])


def test_a_template_that_asks_for_what_there_is_not(tmp_path: Path) -> None:
    template = tmp_path / "own.j2"
    template.write_text("#!/bin/sh\nexec {{ pyhton }}\n")
    with pytest.raises(SchedulerError, match=r"own\.j2: .*pyhton"):
        replace(PILOT_JOB, template=Template(template)).script(PILOT, secret=KEPT)


def test_a_template_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "own.j2"
    path.write_text("#!/bin/sh\n# {{ node }}\n")
    job = replace(PILOT_JOB, template=Template(path))
    path.unlink()
    os.mkfifo(path)  # to read it now would take for ever
    assert job.script(PILOT, secret=KEPT) == "#!/bin/sh\n# n7\n"


@pytest.mark.parametrize("content", ["fifo", "{% if %}", "\ud800", "none"])
def test_what_is_no_template_is_told_at_the_start(tmp_path: Path, content: str) -> None:
    path = tmp_path / "own.j2"
    if content == "fifo":
        os.mkfifo(path)
    elif content != "none":
        path.write_bytes(content.encode(errors="surrogatepass"))
    with pytest.raises(BftrainerError, match=r"pilot template .*own\.j2: \S"):
        Template(path)


@pytest.mark.parametrize(
    ("end", "own", "others"),
    [
        (SlurmJobEnd("COMPLETED", 0, "None"), "", ""),
        (SlurmJobEnd("CANCELLED", 0, "None"), "", ""),
        (SlurmJobEnd("PREEMPTED", 0, "None"), "", ""),
        (
            SlurmJobEnd("COMPLETING", 127, "None"),
            "there is no /opt/py thon/bin/python on n7; see pilot_python",
            "",
        ),
        (
            SlurmJobEnd("FAILED", 1, "NonZeroExitCode"),
            "exit code 1; see /state/50%/logs/agent-n7.log",
            "as ann: /opt",
        ),
        (
            SlurmJobEnd("NODE_FAIL", 0, "NodeDown"),
            "its job failed: NodeDown; see",
            "NodeDown; try there, as ann",
        ),
    ],
)
def test_why_a_pilot_failed_and_where_to_look(end: SlurmJobEnd, own: str, others: str) -> None:
    for pilot, said in ((PILOT, own), (replace(PILOT, user="ann"), others or own)):
        found = failure(PILOT_JOB, pilot, end)
        assert said in found
        assert bool(said) == bool(found)


def test_a_number_without_a_name_as_in_a_container_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    with pytest.raises(BftrainerError, match=r"4000000000.*BFT-262"):
        own_name()


def test_other_users() -> None:
    site = replace(PILOT_JOB, exec_prefix=("sudo", "-n", "-u", "{user}", "--"))
    assert as_user(site.exec_prefix, "", ["sbatch"]) == ["sbatch"]
    assert as_user(site.exec_prefix, "ann", ["sbatch", "-x"]) == [
        "sudo",
        "-n",
        "-u",
        "ann",
        "--",
        "sbatch",
        "-x",
    ]
    with pytest.raises(SchedulerError, match="exec_prefix"):
        as_user(PILOT_JOB.exec_prefix, "ann", ["sbatch"])
    for name in (
        "first.last",
        "alice@ad.example.org",
        "EXAMPLE\\alice",
        "EXAMPLE\\Jo Li",
        "o'neil",
        "jörg",
        "a$",
    ):
        assert as_user(site.exec_prefix, name, ["sbatch"])[3:] == [name, "--", "sbatch"], "no shell reads it"
    for name in (
        "-root",
        "#0",
        "~",
        "a  b",
        " a",
        "ann\n",
        "ann\x07",
        "../x",
        "..",
        "a:b",
        "\u202eann",
        "a" * 300,
    ):
        with pytest.raises(SchedulerError, match="no name of a user"):
            as_user(site.exec_prefix, name, ["sbatch"])


def test_what_is_not_installed_says_where_it_was_sought() -> None:
    with pytest.raises(BftrainerError, match="jobscripts"):
        pilot_job.find("no-such-file")
