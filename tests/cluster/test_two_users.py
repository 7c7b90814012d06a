"""A site's daemon and two users who try to touch each other's trainers, files and processes.

Everything is real: Slurm, munge, sudo, three Unix users. The daemon runs as the third.
"""

from __future__ import annotations

import json
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.testbed import Testbed
from slurm.testbed.ports import free_ports
from tests.support.processes import pids, read
from tests.support.shared_site import ROOT, SPEC, START_S, SharedSite, others_can, words_of
from tests.support.waiting import LONG_S, until


def secret_of(site: SharedSite, user: str, job: str) -> str:
    """A pilot's secret, as its own user can read it in the job's script."""
    script = site.run(user, "scontrol", "write", "batch_script", job, "-").stdout
    return script.partition("$(printf %s ")[2].partition(")")[0]


@pytest.fixture(scope="module")
def site(bed: Testbed, users: tuple[str, str], service: str) -> Iterator[SharedSite]:
    """Both users train, each on a node, and have written checkpoints."""
    if not others_can(["test", "-r", str(ROOT / "bftrainer" / "__init__.py")]):
        pytest.skip(f"other users cannot read {ROOT}")
    with free_ports(2) as ports:
        site = SharedSite(bed, users, service, ports)
        try:
            site.start()
            for user in users:
                site.submit(user, site.name(user))
            for user in users:
                until(
                    lambda u=user: list(checkpoints(site, u)),
                    "each trainer has a checkpoint",
                    seconds=START_S,
                    story=site.story,
                )
            yield site
        finally:
            site.stop()


def checkpoints(site: SharedSite, user: str) -> Iterator[Path]:
    return Path(site.trainer(user)["checkpoint_dir"]).glob("*.pt")


# --- what it is for ------------------------------------------------------------------------------


def test_everything_of_a_trainer_runs_as_its_user(site: SharedSite, users: tuple[str, str]) -> None:
    for user in users:
        _, _, agent = site.pilot(user)
        uid = pwd.getpwnam(user).pw_uid
        mine = [pid for pid in pids() if "train.py" in words_of(pid) and is_of(pid, uid)]
        assert f"\nUid:\t{uid}\t{uid}\t" in Path(f"/proc/{agent}/status").read_text() and len(mine) == 1
        assert f"TOKEN={site.name(user)}-token".encode() in read(mine[0], "environ").split(b"\0")
        folder = Path(site.trainer(user)["log_dir"])
        assert folder.is_relative_to(site.home(user)) and folder.stat().st_uid == uid
        until(
            lambda u=user: "the result is 42" in site.bftrainer(u, "logs", site.name(u)).stdout,
            "what the script prints comes to its user's log",
            seconds=START_S,
            story=site.story,
        )


def test_the_daemons_own_account_does_nothing_but_lead(site: SharedSite, service: str) -> None:
    uid = pwd.getpwnam(service).pw_uid
    running = {pid for pid in pids() if is_of(pid, uid)}
    assert site.daemon is not None and site.daemon.pid in running
    assert not any("train.py" in words_of(pid) or "bftrainer.agent" in words_of(pid) for pid in running)


def is_of(pid: int, uid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == uid
    except OSError:
        return False


# --- trainers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tcp", [False, True], ids=["socket", "tcp"])
def test_nothing_of_the_others_trainers_shows(site: SharedSite, users: tuple[str, str], tcp: bool) -> None:
    for user, other in (users, users[::-1]):
        for command in ("list", "pool", "events", "status"):
            said = json.dumps(site.json(user, command, tcp=tcp))
            assert other not in said, command
        (own,) = site.json(user, "list", tcp=tcp)
        assert own["name"] == site.name(user)


@pytest.mark.parametrize("command", ["show", "cancel", "logs"])
def test_the_others_trainer_is_as_if_it_were_not_there(
    site: SharedSite, users: tuple[str, str], command: str
) -> None:
    alice, bob = users
    theirs = site.trainer(bob)
    for name in (theirs["name"], str(theirs["id"])):
        done = site.bftrainer(alice, command, name)
        assert done.returncode == 1 and f"no trainer '{name}'" in done.stderr
    assert not site.trainer(bob)["ended_at"]


def test_admins_alone_give_orders_and_see_all(site: SharedSite, users: tuple[str, str], service: str) -> None:
    done = site.bftrainer(users[0], "admin", "pause")
    assert done.returncode == 1 and "is no admin here" in done.stderr
    assert {t["user"] for t in site.json(service, "list")} == set(users)
    assert site.json(service, "admin", "pause")["operation"] == "paused"
    assert site.json(users[1], "status")["state"] == "paused"
    assert site.json(service, "admin", "resume")["operation"] == "running"
    until(lambda: f"order=pause user={service}" in site.story(), "the order is logged", story=site.story)


@pytest.mark.parametrize("who", ["root", "service"])
def test_nothing_is_trained_as_root_or_as_the_daemon(site: SharedSite, service: str, who: str) -> None:
    user = service if who == "service" else who
    spec = site.place / "spec.yaml"
    spec.write_text(SPEC.format(name="forbidden", python="python"))
    spec.chmod(0o644)
    (site.place / "train.py").touch(0o644)
    done = site.bftrainer(user, "submit", str(spec))
    assert done.returncode == 1 and f"trainers of {user} are not run here" in done.stderr


# --- files and secrets ---------------------------------------------------------------------------


def test_the_others_files_cannot_be_read(site: SharedSite, users: tuple[str, str]) -> None:
    alice, bob = users
    folder = Path(site.trainer(bob)["log_dir"])
    (checkpoint, *_) = checkpoints(site, bob)
    (log,) = folder.glob("*.log")
    site.home(bob).chmod(0o755)  # bob is careless with his home
    for path in (folder, log, checkpoint):
        assert refused(site.run(alice, "ls" if path is folder else "cat", path))
    assert refused(site.run(alice, "sh", "-c", f"echo evil > {folder}/evil.log"))


def test_the_daemons_secrets_cannot_be_read(site: SharedSite, users: tuple[str, str]) -> None:
    for path in (site.state, site.state / "key", site.state / "bftrainer.db", site.state / "daemon.lock"):
        assert refused(site.run(users[0], "ls" if path is site.state else "cat", path))
    assert site.daemon is not None
    assert refused(site.run(users[0], "cat", f"/proc/{site.daemon.pid}/environ"))


def test_the_check_of_the_site_finds_it_safe(site: SharedSite, users: tuple[str, str]) -> None:
    def checked(user: str) -> dict[str, str]:
        config = str(site.place / "daemon.yaml")
        command = [sys.executable, "-m", "bftrainer", "admin", "check", "--json", "--user", user]
        done = subprocess.run(
            [*command, "--config", config], capture_output=True, text=True, check=False, env=site.bed.env
        )
        return {one["check"]: one["level"] for one in json.loads(done.stdout)}

    found = checked(users[0])
    safe = ("sudo rule", "munge", "state directory", "socket", "slurm", f"settings {site.place}/daemon.yaml")
    assert {name: found[name] for name in safe} == dict.fromkeys(safe, "ok"), found
    assert checked("nobody")["sudo rule"] == "wrong", "the rule does not cover this one"
    (site.place / "daemon.yaml").chmod(0o666)
    assert checked(users[0])[f"settings {site.place}/daemon.yaml"] == "wrong"
    (site.place / "daemon.yaml").chmod(0o644)


def test_a_pilots_secret_is_nowhere_to_be_found(site: SharedSite, users: tuple[str, str]) -> None:
    alice, bob = users
    job, _, agent = site.pilot(bob)
    secret = secret_of(site, bob, job)
    assert len(secret) == 64, "it is his own"
    assert refused(site.run(alice, "cat", f"/proc/{agent}/environ"))
    for pid in pids():
        assert secret.encode() not in read(pid, "environ") + read(pid, "cmdline"), "as root sees it"
    script = site.run(alice, "scontrol", "write", "batch_script", job, "-")
    assert script.stdout == "" and "Invalid user id" in script.stderr
    assert secret not in site.run(alice, "scontrol", "show", "job", job, "-d").stdout
    assert secret not in site.run(alice, "ps", "-eo", "args", "ww").stdout
    assert secret not in site.story()
    assert f"{site.name(bob)}-token" not in site.run(alice, "ps", "-eo", "args", "ww").stdout


# --- processes and jobs --------------------------------------------------------------------------


def test_the_others_processes_and_jobs_cannot_be_ended(site: SharedSite, users: tuple[str, str]) -> None:
    alice, bob = users
    job, _, agent = site.pilot(bob)
    worker = next(p for p in pids() if "train.py" in words_of(p) and is_of(p, pwd.getpwnam(bob).pw_uid))
    assert site.daemon is not None
    for pid in (agent, worker, site.daemon.pid):
        assert "not permitted" in site.run(alice, "kill", "-KILL", pid).stderr
    done = site.run(alice, "scancel", job)
    assert done.returncode != 0 and "Access/permission denied" in done.stderr
    assert site.pilot(bob) == (job, site.pilot(bob)[1], agent)


def test_nobody_becomes_another_through_the_daemons_rule(site: SharedSite, users: tuple[str, str]) -> None:
    alice, bob = users
    assert site.run(alice, "sudo", "-n", "-u", bob, "--", "sbatch", "--version").returncode != 0
    done = site.run(site.service, "sudo", "-n", "-u", "root", "--", "sbatch", "--version")
    assert done.returncode != 0
    assert site.run(site.service, "sudo", "-n", "-u", bob, "--", "cat", "/dev/null").returncode != 0


# --- agents --------------------------------------------------------------------------------------


def play_agent(site: SharedSite, user: str, node: str, tag: str, secret: str) -> None:
    """An agent by hand, until it gives up."""
    site.run(
        user,
        *(site.python, "-m", "bftrainer.agent", "--node", node, "--tag", tag),
        *("--daemon", site.agents_at, "--orphan-s", "1"),
        input=secret,
        timeout=LONG_S,
    )


def test_a_guessed_secret_opens_nothing(site: SharedSite, users: tuple[str, str]) -> None:
    alice, bob = users
    job, tag, agent = site.pilot(bob)
    before = site.trainer(bob)
    (node,) = before["members"]
    play_agent(site, alice, node, tag, "0" * 64)
    until(
        lambda: "does not know its pilot's secret" in site.story(), "the refusal is logged", story=site.story
    )
    assert site.pilot(bob) == (job, tag, agent)
    assert site.trainer(bob)["generation"] == before["generation"]


def test_ones_own_secret_opens_no_other_node(site: SharedSite, users: tuple[str, str]) -> None:
    alice, bob = users
    job, tag, _ = site.pilot(alice)
    secret = secret_of(site, alice, job)
    before = site.trainer(bob)
    (node,) = before["members"]
    play_agent(site, alice, node, tag, secret)
    assert site.trainer(bob)["generation"] == before["generation"]
    assert site.trainer(bob)["members"] == [node]


def test_a_job_that_pretends_to_be_the_others_pilot_is_cancelled(
    site: SharedSite, users: tuple[str, str]
) -> None:
    alice, bob = users
    job, tag, agent = site.pilot(bob)
    name = site.bed.run(["squeue", "-h", "-j", job, "-o", "%j"]).stdout.strip()
    before = site.trainer(bob)
    fake = site.run(
        alice,
        *(
            "sbatch",
            "--parsable",
            "-p",
            "backfill",
            f"--job-name={name}",
            f"--nodelist={before['members'][0]}",
        ),
        *("--output=/dev/null", "--wrap", "sleep 1000"),
    )
    number = fake.stdout.strip()
    assert fake.returncode == 0, fake.stderr
    until(
        lambda: number not in site.bed.run(["squeue", "-h", "-o", "%i"]).stdout.split(),
        "the job is gone",
        seconds=START_S,
        story=site.story,
    )
    assert site.pilot(bob) == (job, tag, agent)
    assert site.trainer(bob)["generation"] == before["generation"]


def test_a_pretender_whom_the_rule_does_not_cover_keeps_nobody_elses_pilot(
    site: SharedSite, users: tuple[str, str]
) -> None:
    """The daemon may not cancel jobs of root."""
    alice, bob = users
    name = site.bed.run(["squeue", "-h", "-j", site.pilot(bob)[0], "-o", "%j"]).stdout.strip()
    node = site.trainer(bob)["members"][0]

    def pretend(user: str) -> str:
        words = ["sbatch", "--parsable", "-p", "backfill", f"--nodelist={node}"]
        words += [f"--job-name={name}", "--output=/dev/null", "--wrap", "sleep 1000"]
        return site.bed.run(words, user=user).stdout.strip()

    def queue() -> list[str]:
        return site.bed.run(["squeue", "-h", "-o", "%i"]).stdout.split()

    ours = pretend("root")
    try:
        until(
            lambda: "scancel as root failed" in site.story(),
            "the failed scancel is told",
            seconds=START_S,
            story=site.story,
        )
        number = pretend(alice)
        until(lambda: number not in queue(), "the job is gone", seconds=START_S, story=site.story)
        assert ours in queue()
    finally:
        site.bed.run(["scancel", ours])
    until(lambda: ours not in queue(), "our pilot is gone", seconds=START_S, story=site.story)


# --- over TCP ------------------------------------------------------------------------------------

ASK = """\
import sys, urllib.error, urllib.request
method, url, credential = sys.argv[1:4]
headers = {"Authorization": f"Munge {credential}"} if credential else {}
try:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, method=method, headers=headers)) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


def ask(site: SharedSite, user: str, path: str, credential: str = "", method: str = "GET") -> str:
    url = f"http://{site.server}{path}"
    return site.run(user, site.python, "-c", ASK, method, url, credential).stdout


def credential(site: SharedSite, user: str, path: str, *options: str, method: str = "GET") -> str:
    code = f"from bftrainer.api.munge import digest; print(digest('{method}', '{path}', b''), end='')"
    payload = site.run(user, site.python, "-c", code).stdout
    done = site.run(user, "munge", f"--socket={site.bed.plan.munge_socket}", *options, input=payload)
    return done.stdout.strip()


def test_over_tcp_nobody_gets_in_without_munge(site: SharedSite, users: tuple[str, str]) -> None:
    for path in ("/v1/trainers", "/v1/status", "/v1/pool", "/v1/events"):
        assert ask(site, users[0], path).startswith("401 ")
    assert ask(site, users[0], "/v1/admin/pause", method="POST").startswith("401 ")
    assert site.name(users[1]) not in ask(site, users[0], "/metrics")


def test_a_credential_is_ones_own_and_serves_once(site: SharedSite, users: tuple[str, str]) -> None:
    alice, bob = users
    shown = credential(site, bob, "/v1/trainers")
    assert site.name(bob) in ask(site, bob, "/v1/trainers", shown)
    replayed = ask(site, alice, "/v1/trainers", shown)  # found on the network, say
    assert replayed.startswith("401 ") and "Replayed credential" in replayed
    id_ = site.trainer(bob)["id"]
    own = credential(site, alice, f"/v1/trainers/{id_}", method="DELETE")
    assert ask(site, alice, f"/v1/trainers/{id_}", own, method="DELETE").startswith("404 ")
    forged = credential(site, alice, "/v1/trainers", f"--uid={bob}")
    assert site.name(bob) not in ask(site, alice, "/v1/trainers", forged)
    for_another = credential(site, bob, "/v1/status")
    said = ask(site, alice, "/v1/trainers", for_another)
    assert said.startswith("401 ") and "for another request" in said
    assert not site.trainer(bob)["ended_at"]


def test_an_old_credential_is_refused(site: SharedSite, users: tuple[str, str]) -> None:
    shown = credential(site, users[0], "/v1/trainers", "--ttl=1")
    made = time.time()
    until(lambda: time.time() > made + 2.5, "the credential is too old", seconds=LONG_S, story=site.story)
    said = ask(site, users[0], "/v1/trainers", shown)
    assert said.startswith("401 ") and "Expired credential" in said


def refused(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode != 0 and "ermission denied" in done.stderr


def test_in_the_end_both_still_train(site: SharedSite, users: tuple[str, str]) -> None:
    for user in users:
        step = site.trainer(user)["step"]
        until(
            lambda u=user, s=step: site.trainer(u)["step"] > s,
            "it trains on",
            seconds=START_S,
            story=site.story,
        )
