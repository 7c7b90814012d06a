"""A site with slurmdbd: the QOS and the account that it adds for pilots."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from slurm.testbed import Testbed, why_not
from slurm.testbed.plan import FRAGMENTS
from slurm.testbed.processes import until

PILOT = ("-p", "backfill", "--account=bftrainer", "--qos=bftrainer")


@pytest.fixture(scope="module")
def user() -> str:
    """Of this run alone."""
    return f"bft-c-{secrets.token_hex(4)}"


@pytest.fixture(scope="module")
def site(user: str) -> Iterator[Testbed]:
    if why := why_not(slurmdbd=True):
        pytest.skip(why)
    with Testbed(nodes=2, slurmdbd=True, users=[user]) as bed:
        yield bed


def submit(site: Testbed, user: str, *options: str) -> str:
    command = ["sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", "exec sleep 1000"]
    return site.run(command, user=user).stdout.strip()


def shows(site: Testbed, number: str, wanted: str) -> bool:
    command = ["squeue", "-h", "-j", number, "-o", "%T %r %a %q"]
    return until(lambda: site.run(command).stdout.strip() == wanted, 240)


def test_pilots_are_not_charged_and_have_one_node_each(site: Testbed, user: str) -> None:
    site.run([str(FRAGMENTS / "bftrainer-qos.sh"), "1", user])  # again, with fewer nodes
    factor = site.run(["sacctmgr", "-n", "-P", "show", "qos", "bftrainer", "format=UsageFactor,GrpTRES"])
    assert factor.stdout.strip() == "0.000000|node=1"
    assert shows(site, submit(site, user, *PILOT, "-N1"), "RUNNING None bftrainer bftrainer")
    assert shows(site, submit(site, user, *PILOT, "-N1"), "PENDING QOSGrpNodeLimit bftrainer bftrainer")
    assert shows(site, submit(site, user, *PILOT, "-N2"), "PENDING QOSMaxNodePerJobLimit bftrainer bftrainer")
    assert shows(site, submit(site, user, "-N2"), "RUNNING None main normal")
