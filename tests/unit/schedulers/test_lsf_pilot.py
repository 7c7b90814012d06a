"""A pilot as LSF gets it."""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer.errors import NoRoomError, SchedulerError
from bftrainer.model.machine import Pilot, Slot
from bftrainer.schedulers.lsf import commands
from bftrainer.schedulers.lsf.command import environment
from bftrainer.schedulers.lsf.make import TEMPLATES
from bftrainer.schedulers.lsf.pilot import START_S, LsfPilotJob, Named, command, failure, named, secretly
from bftrainer.schedulers.lsf.rows import EndKind, LsfJobEnd
from bftrainer.schedulers.shared import pilot_job
from bftrainer.schedulers.shared.pilot_job import Template

TAG = "0123abcd" * 4
PILOT = Pilot(tag=TAG, node="a01n10")
JOB = LsfPilotJob(
    instance="0a1b2c3d",
    template=Template(pilot_job.find("lsf-pilot.sh.j2")),
    python="/opt/py thon/bin/python",
    daemon="10.0.0.1:4000",
    orphan_s=60.0,
    log_dir=Path("/state/50%/logs"),
    max_s=7200.0,
    queue="killable",
)


def options(words: list[str]) -> dict[str, str]:
    return {word: words[i + 1] for i, word in enumerate(words[:-1]) if word.startswith("-") and len(word) < 9}


def test_a_whole_host_of_plain_lsf() -> None:
    words = command(replace(JOB, project="P1", options=("-G", "g")), PILOT, 42, 3700.0)
    assert words[0] == "bsub"
    assert options(words) == {
        "-J": f"bftrainer-0a1b2c3d-{TAG}-a01n10",
        "-q": "killable",
        "-P": "P1",
        "-n": "42",
        "-R": "span[hosts=1]",
        "-m": "a01n10",
        "-W": "61",
        "-rn": "-o",
        "-o": "/state/50%%/logs/agent-a01n10.log",
        "-G": "g",
    }
    assert named(options(words)["-J"]) == Named("0a1b2c3d", TAG, Slot("a01n10"))


def test_a_host_in_the_modes_of_summit() -> None:
    easy = command(replace(JOB, submission="easy"), PILOT, 42, None)
    assert options(easy)["-nnodes"] == "1"
    assert not {"-n", "-R", "-m", "-csm"} & set(easy)
    expert = options(command(replace(JOB, submission="expert", launch_slots=1), PILOT, 42, None))
    assert expert["-csm"] == "y"
    assert expert["-n"] == "43"
    assert "42*{select[CN&&hname=='a01n10']" in expert["-R"]
    assert expert["-R"].startswith("1*{select[LN]")


def test_run_limits() -> None:
    assert JOB.minutes(None, start_s=START_S) == 120
    assert JOB.minutes(140.0, start_s=START_S) == 2
    assert JOB.minutes(10.0, start_s=START_S) == 1, "LSF takes its host back anyhow"
    with pytest.raises(NoRoomError, match="in minutes"):
        replace(JOB, window=True).minutes(79.0, start_s=START_S)
    assert replace(JOB, window=True).minutes(80.0, start_s=START_S) == 1


@pytest.mark.parametrize(
    "bad", [Pilot(tag=TAG, node="a b"), Pilot(tag=TAG, node="-x"), Pilot(tag="x", node="a")]
)
def test_names_that_no_command_line_should_have(bad: Pilot) -> None:
    with pytest.raises(SchedulerError, match="is no name of a"):
        command(JOB, bad, 42, None)


def test_a_pilot_of_another_user_writes_no_log_of_ours() -> None:
    assert options(command(JOB, replace(PILOT, user="ann"), 42, None))["-o"] == "/dev/null"


@pytest.mark.parametrize("name", sorted(set(TEMPLATES.values())))
def test_the_agent_gets_the_secret_on_its_standard_input_only(name: str, tmp_path: Path) -> None:
    """LSF shows a job's script to all users, and workers can read the environment of what they come from."""
    told = tmp_path / "told"
    python = tmp_path / "py thon"
    python.write_text(
        f'#!/bin/sh\n{{ echo "$@"; cat; env; tr "\\0" "\\n" < /proc/self/environ; }} > {told}\n'
    )
    jsrun = tmp_path / "jsrun"
    jsrun.write_text('#!/bin/sh\nwhile [ "$1" != sh ]; do shift; done\nexec "$@"\n')
    for path in (python, jsrun):
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    job = replace(JOB, template=Template(pilot_job.find(name)), python=str(python))
    text = job.script(PILOT, slots="1", gpus="0")
    assert "s3cr$t" not in text
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **secretly("s3cr$t `x`")}
    environ["LSB_MCPU_HOSTS"] = "batch1 1 b02n01 42"
    subprocess.run(["sh"], input=text, env=environ, text=True, check=True, timeout=20)
    first, second, *rest = told.read_text().splitlines()
    node = "b02n01" if name.startswith("summit") else "a01n10"
    assert first == (f"-P -m bftrainer.agent --node {node} --tag {TAG} --daemon 10.0.0.1:4000 --orphan-s 60")
    assert second == "s3cr$t `x`"
    assert rest and not any("s3cr" in line for line in rest)


@pytest.mark.parametrize("kind", [kind for kind in EndKind if kind is not EndKind.FAILED])
def test_most_ends_are_no_failures(kind: EndKind) -> None:
    assert failure(JOB, PILOT, LsfJobEnd(kind, 137, "x")) == ""


def test_failures_say_where_to_look() -> None:
    assert "there is no /opt/py thon/bin/python on a01n10" in failure(
        JOB, PILOT, LsfJobEnd(EndKind.FAILED, 127)
    )
    said = failure(JOB, PILOT, LsfJobEnd(EndKind.FAILED, 1, ""))
    assert said == "its job failed: exit code 1; see /state/50%/logs/agent-a01n10.log"
    assert "try there, as ann" in failure(
        JOB, replace(PILOT, user="ann"), LsfJobEnd(EndKind.FAILED, 1, "TERM_X: y")
    )


def test_the_environment_of_commands() -> None:
    given = {"LSB_BJOBS_FORMAT": "x", "LSB_JOBID": "1", "BSUB_QUIET": "1", "LSF_ENVDIR": "/e", "PATH": "/bin"}
    assert environment(given) == {"LSF_ENVDIR": "/e", "PATH": "/bin"}


def test_questions_name_their_fields() -> None:
    scope = commands.Scope("select[CN]", ("rack1",), commands.Form.DELIMITED)
    assert commands.hosts(scope) == [
        *("bhosts", "-X", "-R", "select[CN]"),
        *("-o", "host_name status max njobs run ssusp ususp rsv delimiter='^'", "rack1"),
    ]
    assert commands.jobs(commands.Form.JSON)[-1] == "-json"
    assert commands.end(["1", "2"], "TERM") == ["bkill", "-s", "TERM", "1", "2"]
