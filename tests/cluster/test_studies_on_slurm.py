"""Studies on a real Slurm: to their end, and two users' beside each other by the weights of their shares."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.testbeds.workload import MainJob
from slurm.testbed import Testbed
from slurm.testbed.load import Load
from slurm.testbed.ports import free_ports
from tests.support.shared_site import ROOT, SharedSite, others_can
from tests.support.slurm_site import SlurmSite
from tests.support.study_commands import a_study_by_all_its_commands
from tests.support.waiting import LONG_S, until

SECONDS = 600.0
WEIGHTS = (1.0, 3.0)
PACED = """\
import time
import torch
from torch.utils.data import TensorDataset
from bftrainer import elastic

torch.set_num_threads(1)
model = torch.nn.Linear(1, 1)
data = TensorDataset(torch.ones(10_000, 1))
for (x,) in (run := elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.0), data, batch_size=4)):
    model(x).sum().backward()
    time.sleep(0.1)  # as if an accelerator computed
    run.step(loss=0.25)
run.report(score=0.5)
"""
STUDY: dict[str, Any] = {
    "trainer": {"nodes": {"min": 1, "max": 2}, "checkpoint": {"every_s": 5}},
    "space": {"x": {"float": [0.0, 1.0]}},
    "metric": "score",
    "sampler": "random",
}


def test_a_user_has_all_commands_of_studies(bed: Testbed) -> None:
    site = SlurmSite(bed)
    try:
        site.start()
        a_study_by_all_its_commands(site)
    finally:
        site.close()
    bed.wait_idle()


@pytest.fixture
def site(bed: Testbed, users: tuple[str, str], service: str) -> Iterator[SharedSite]:
    """A daemon that shares the pool between the two users by WEIGHTS."""
    if not others_can(["test", "-r", str(ROOT / "bftrainer" / "__init__.py")]):
        pytest.skip(f"other users cannot read {ROOT}")
    with free_ports(2) as ports:
        shares = dict(zip(users, WEIGHTS, strict=True))
        site = SharedSite(bed, users, service, ports, user_shares=shares, objective="efficiency")
        try:
            site.start()
            yield site
        finally:
            for user in users:
                site.bftrainer(user, "study", "cancel", "many")
            site.stop()


def submit(site: SharedSite, user: str) -> None:
    """Submit a study of more trials than there is time for; one takes about 20 s on a node."""
    home = site.home(user)
    study = {**STUDY, "name": "many", "trials": 400, "budget": 800}
    study["trainer"] = {**STUDY["trainer"], "command": [str(site.python), "paced.py", "{x}"]}
    for name, text in (("paced.py", PACED), ("many.yaml", json.dumps(study))):
        (home / name).write_text(text)
        shutil.chown(home / name, user, user)
    done = site.bftrainer(user, "study", "submit", f"{home}/many.yaml")
    assert done.returncode == 0, done.stderr


def main_jobs(seconds: float) -> list[MainJob]:
    """Jobs of one or two nodes, one after the other: the pool is seldom a whole number of shares."""
    rng, at, found = random.Random(1), 10.0, []
    while at < seconds - 40:
        run_s = rng.uniform(10, 30)
        found.append(
            MainJob(number=len(found) + 1, submit_s=at, size=rng.randint(1, 2), run_s=run_s, limit_s=90)
        )
        at += run_s + rng.uniform(5, 25)
    return found


def node_seconds(database: Path, begin: float, end: float) -> Counter[str]:
    """User -> the node-seconds that its trainers were given from `begin` to `end`, as the store has it."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as store:
        user_of = dict(store.execute("select id, user from trainers"))
        query = "select time, allocation from plans join events on plans.event = events.id order by id"
        plans = [(at, json.loads(allocation)) for at, allocation in store.execute(query)]
    found: Counter[str] = Counter()
    for (at, allocation), (until_, _) in pairwise([*plans, (end, {})]):
        seconds = max(0.0, min(until_, end) - max(at, begin))
        for trainer, nodes in allocation.items():
            found[user_of[int(trainer)]] += seconds * len(nodes)  # type: ignore[assignment]
    return found


def both_hold(site: SharedSite, users: Sequence[str]) -> bool:
    return all(site.json(user, "study", "show", "many")["nodes"] for user in users)


@pytest.mark.nightly
@pytest.mark.timeout(SECONDS + 900)
def test_two_users_studies_share_the_nodes_by_their_weights(
    site: SharedSite, users: tuple[str, str], bed: Testbed
) -> None:
    for user in users:
        submit(site, user)
    until(lambda: both_hold(site, users), "both have nodes", story=site.story)
    begin = time.time()
    with Load(bed, main_jobs(SECONDS)) as load:
        until(
            lambda: time.time() >= begin + SECONDS,
            "ten minutes are over",
            seconds=SECONDS + LONG_S,
            story=site.story,
        )
        load.wait(LONG_S)
    held = node_seconds(site.state / "bftrainer.db", begin, begin + SECONDS)
    ended = {user: site.json(user, "study", "show", "many")["counts"] for user in users}
    print({user: round(held[user]) for user in users}, held.total(), ended)
    for user, weight in zip(users, WEIGHTS, strict=True):
        share = weight / sum(WEIGHTS)
        assert held[user] / held.total() == pytest.approx(share, rel=0.1), (held, ended)
