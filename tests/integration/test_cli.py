"""The command line against a running daemon."""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.site import SCRIPTS, Site, always, running
from tests.support.waiting import LONG_S

SPEC = """\
name: quick
command: [python, stop_early.py]
nodes: {min: 1, max: 2}
"""

NO_CONFIG = str(Path(tempfile.gettempdir()) / "bftrainer-no-config")
"""A user's settings, which are not there; other programs may put theirs beside them."""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(always("n1", "n2")) as site:
        yield site


def bftrainer(*words: str, state: Path | None = None, code: int = 0) -> str:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("BFTRAINER_") or "SITE" in k}
    environ |= {"COLUMNS": "200", "XDG_CONFIG_HOME": NO_CONFIG}
    if state is not None:
        environ["BFTRAINER_STATE_DIR"] = str(state)
    command = [sys.executable, "-m", "bftrainer", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ, timeout=LONG_S)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_users_way(site: Site, tmp_path: Path) -> None:
    spec = tmp_path / "quick.yaml"
    spec.write_text(SPEC + f"workdir: {SCRIPTS}\n")
    assert "submitted quick as trainer 1" in bftrainer("submit", str(spec), state=site.state)
    assert site.until_ended("quick")["status"] == "completed"
    assert "quick" in bftrainer("list", state=site.state)
    assert "completed" in bftrainer("show", "quick", state=site.state)
    assert "good enough" in bftrainer("logs", "quick", state=site.state)
    assert "n1" in bftrainer("pool", state=site.state)
    assert "features" in bftrainer("pool", "--long", state=site.state)
    assert "ok" in bftrainer("status", state=site.state)
    events = bftrainer("events", "-n", "100", state=site.state)
    assert "TrainerSubmitted" in events and "proven" in events and "Regroup" in events
    assert "completed" in bftrainer("cancel", "quick", state=site.state), (
        "cancelling the ended changes nothing"
    )


def test_tab_completes_what_the_daemon_knows(site: Site, tmp_path: Path) -> None:
    spec = tmp_path / "whole.yaml"
    spec.write_text(SPEC.replace("quick", "whole") + f"workdir: {SCRIPTS}\n")
    bftrainer("submit", str(spec), state=site.state)

    def completed(words: str) -> list[str]:
        typed = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        environ = {"_BFTRAINER_COMPLETE": "bash_complete", "BFTRAINER_STATE_DIR": str(site.state), **typed}
        program = str(Path(sys.executable).with_name("bftrainer"))
        done = subprocess.run(
            [program], check=False, capture_output=True, text=True, env=os.environ | environ, timeout=LONG_S
        )
        return done.stdout.split()

    assert completed("bftrainer pilot --node n") == ["plain,n1", "plain,n2"]
    assert "plain,whole" in completed("bftrainer show w")


def test_what_a_script_reports_is_shown_stored_and_exported(site: Site, tmp_path: Path) -> None:
    spec = tmp_path / "told.yaml"
    spec.write_text(
        "name: told\ncommand: [python, tell.py]\nnodes: {min: 1, max: 1}\nwork: {samples: 1000000}\n"
        f"workdir: {SCRIPTS}\n"
    )
    bftrainer("submit", str(spec), state=site.state)
    site.until(lambda: site.trainer("told")["metrics"].get("loss") == 0.25, LONG_S, "the script's words")
    assert "loss=0.25" in bftrainer("show", "told", state=site.state)
    assert "loss=0.25" in bftrainer("status", state=site.state)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(site.state / "daemon.sock"))
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = connection.makefile().read()
    user = pwd.getpwuid(os.getuid()).pw_name
    assert f'bftrainer_trainer_metric{{metric="loss",trainer="told",user="{user}"}} 0.25' in text
    assert "bftrainer_pool_nodes" in text
    site.until(lambda: site.get("reports", limit=10, trainer="told"), LONG_S, "reports are stored")
    (*_, last) = site.get("reports", limit=10, trainer="told")
    assert last["metrics"]["loss"] == 0.25 and last["step"] > 0 and last["time"] > 0
    head, *lines = bftrainer("metrics", "told", "--csv", state=site.state).splitlines()
    assert head == "time,step,samples,nodes,samples_per_s,loss" and lines[-1].endswith(",0.25")
    bftrainer("metrics", "told", "--plot", str(tmp_path / "told.png"), state=site.state)
    assert (tmp_path / "told.png").stat().st_size > 0
    assert "no trainer 'untold'" in bftrainer("metrics", "untold", state=site.state, code=1)
    bftrainer("cancel", "told", state=site.state)


def test_a_trainer_goes_on_from_the_checkpoint_of_one_that_was_cancelled(site: Site, tmp_path: Path) -> None:
    spec = tmp_path / "again.yaml"
    spec.write_text(
        "name: again\ncommand: [python, tell.py]\nnodes: {min: 1, max: 1}\nwork: {samples: 1000000}\n"
        f"workdir: {SCRIPTS}\n"
    )
    bftrainer("submit", str(spec), state=site.state)
    site.until(lambda: site.trainer("again")["step"] > 5, LONG_S, "it trains")
    assert "has not ended" in bftrainer("submit", str(spec), "--resume", "again", state=site.state, code=1)
    bftrainer("cancel", "again", state=site.state)
    site.until(lambda: site.trainer("again")["ended_at"], LONG_S, "its end")
    site.until(lambda: not site.trainer("again")["workers"], LONG_S, "its workers' end")
    first = site.trainer("again")
    assert "goes on from the last checkpoint of trainer" in bftrainer(
        "submit", str(spec), "--resume", "again", state=site.state
    )
    site.until(lambda: site.trainer("again")["step"] > first["step"], LONG_S, "it goes on")
    second = site.trainer("again")
    assert second["id"] != first["id"] and second["checkpoint_dir"] == first["checkpoint_dir"]
    said = bftrainer("logs", "again", state=site.state)
    assert f"bftrainer: trainer {second['id']} starts on" in said
    step = int(re.search(r"bftrainer: resumed from step (\d+)", said)[1])  # type: ignore[index]
    assert step >= first["step"] > 5
    bftrainer("cancel", "again", state=site.state)
    site.until(lambda: site.trainer("again")["ended_at"], LONG_S, "its end")
    assert "it begins anew; the checkpoints of trainer" in bftrainer("submit", str(spec), state=site.state)
    bftrainer("cancel", "again", state=site.state)


def test_the_kernel_says_who_submitted_a_trainer(site: Site, tmp_path: Path) -> None:
    spec = tmp_path / "mine.yaml"
    spec.write_text(SPEC.replace("quick", "mine") + f"workdir: {SCRIPTS}\npriority: 3\n")
    bftrainer("submit", str(spec), state=site.state)
    shown = json.loads(bftrainer("show", "mine", "--json", state=site.state))
    assert shown["user"] == pwd.getpwuid(os.getuid()).pw_name
    assert shown["priority"] == 3.0
    bftrainer("cancel", "mine", state=site.state)


def test_an_admin_pauses_drains_and_resumes(site: Site, tmp_path: Path) -> None:
    spec = tmp_path / "long.yaml"
    spec.write_text(
        "name: long\ncommand: [python, tell.py]\nnodes: {min: 1, max: 1}\nwork: {samples: 100000000}\n"
        f"workdir: {SCRIPTS}\n"
    )
    bftrainer("submit", str(spec), state=site.state)
    site.until(lambda: site.trainer("long")["samples"] > 0, LONG_S, "it trains")
    assert bftrainer("admin", "pause", state=site.state).startswith("paused; ")
    assert "paused" in bftrainer("status", state=site.state)
    assert site.trainer("long")["members"], "what runs goes on"
    assert json.loads(bftrainer("admin", "drain", "--json", state=site.state))["operation"] == "draining"
    site.until(lambda: not site.workers() and not site.agents(), LONG_S, "all nodes are given back")
    reached = site.trainer("long")["samples"]
    assert list(Path(site.trainer("long")["checkpoint_dir"]).glob("*.pt"))
    assert bftrainer("admin", "resume", state=site.state).startswith("running; ")
    site.until(lambda: site.trainer("long")["samples"] > reached, LONG_S, "it goes on from there")
    bftrainer("cancel", "long", state=site.state)


@pytest.mark.parametrize(
    "command", [["list"], ["pool"], ["events"], ["status"], ["show", "1"], ["logs", "1"]]
)
def test_json(site: Site, command: list[str]) -> None:
    if not site.get("trainers"):  # the tests before this one run elsewhere
        site.submit("shown", "count.py", str(site.root))
        site.until(lambda: site.trainer("shown")["members"], LONG_S, "it runs")
        bftrainer("cancel", "shown", state=site.state)
    assert json.loads(bftrainer(*command, "--json", state=site.state)) is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes: {min: 3, max: 2}", ["spec.yaml:3", "min 3 is above max 2"]),
        ("nodes: {max: 2}\nwigth: 1", ["spec.yaml:4", "wigth", "did you mean 'weight'"]),
        ("nodes: {max: two}", ["spec.yaml:3", "'two'", "whole number"]),
        ("nodes: {max: 2}\ncurve: [[0, 5], [1, 9]]", ["spec.yaml:4", "a point at 0 nodes"]),
        ("nodes: {max: 2}\ncurve: [[1, 5], [1, 9]]", ["spec.yaml:4", "two points for 1"]),
    ],
)
def test_a_bad_spec_is_explained_and_not_stored(
    site: Site, tmp_path: Path, text: str, words: list[str]
) -> None:
    before = site.get("trainers")
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"name: bad\ncommand: [python, x.py]\n{text}\n")
    said = bftrainer("submit", str(spec), state=site.state, code=1)
    assert all(word in said for word in words), said
    assert site.get("trainers") == before
    body = {"spec": spec.read_text(), "name": "spec.yaml", "base": "/"}
    with pytest.raises(Exception, match=r"spec\.yaml"):  # nor may a client that goes round the command line
        site.client.call("POST", "trainers", body=body)
    assert site.get("trainers") == before


def test_who_submits_looks_for_the_workdir(site: Site, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("name: bad\ncommand: [python, x.py]\nnodes: {max: 2}\nworkdir: nowhere\n")
    said = bftrainer("submit", str(spec), state=site.state, code=1)
    assert all(word in said for word in ("spec.yaml:4", "nowhere", "no folder")), said
    assert all(t["name"] != "bad" for t in site.get("trainers"))


def test_unknown_trainers_and_a_missing_daemon(site: Site, tmp_path: Path) -> None:
    assert "no trainer 'nobody'" in bftrainer("show", "nobody", state=site.state, code=1)
    assert "bftrainer daemon" in bftrainer("list", state=tmp_path, code=1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b"{}",
        b'{"spec": 1, "name": "a", "base": "/"}',
        b'{"spec": "a: [", "name": "a", "base": "/"}',
    ],
)
def test_bad_requests_get_an_answer(site: Site, body: bytes) -> None:
    import asyncio

    import aiohttp

    async def post() -> tuple[int, str]:
        connector = aiohttp.UnixConnector(path=str(site.state / "daemon.sock"))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post("http://x/v1/trainers", data=body) as answer,
        ):
            return answer.status, (await answer.json())["error"]

    status, error = asyncio.run(post())
    assert status == 400 and error


def test_only_the_owner_can_open_the_socket(site: Site) -> None:
    assert (site.state / "daemon.sock").stat().st_mode & 0o777 == 0o600
    assert site.state.stat().st_mode & 0o777 == 0o700
