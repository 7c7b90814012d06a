"""Trainers of two users on the GPUs of one node, where the site allows it, and one after the other where not.

Everything is real: Slurm, munge, sudo, the users. The GPUs are made up.
"""

from __future__ import annotations

import pytest

from slurm.testbed import Testbed
from slurm.testbed.ports import free_ports
from tests.cluster.test_parts_of_nodes import gpus_of
from tests.support.shared_site import ROOT, SPEC, START_S, SharedSite, others_can
from tests.support.waiting import until


def pilots_of(bed: Testbed, user: str) -> list[str]:
    """The numbers of a user's pilots that run."""
    return bed.run(["squeue", "-h", "-t", "RUNNING", "-u", user, "-o", "%i"]).stdout.split()


@pytest.mark.parametrize("share_nodes", ["users", "no"])
def test_two_users_share_a_node_where_the_site_allows_it(
    users: tuple[str, str], service: str, share_nodes: str
) -> None:
    if not others_can(["test", "-r", str(ROOT / "bftrainer" / "__init__.py")]):
        pytest.skip(f"other users cannot read {ROOT}")
    sharing = {"share": "gpu", "harvest": "gpus", "share_nodes": share_nodes}
    with (
        Testbed(nodes=1, shared=True, parts=True, gres={"n1": "gpu:a100:2"}) as bed,
        free_ports(2) as ports,
    ):
        site = SharedSite(bed, users, service, ports, **sharing)

        def trains(*some: str) -> bool:
            return all(site.trainer(user)["members"] for user in some)

        try:
            site.start()
            for user in users:
                site.submit(user, site.name(user), SPEC.replace("nodes:", "gpus:"))
            first = users[:1] if share_nodes == "no" else users
            until(lambda: trains(*first), "they train", seconds=START_S, story=site.story)
            (one,), others = (pilots_of(bed, user) for user in users)
            if share_nodes == "users":
                assert gpus_of(bed, one) | gpus_of(bed, others[0]) == {0, 1}, "each has its own"
                return
            assert not others, "nobody else's pilot is on the node"
            site.bftrainer(users[0], "cancel", site.name(users[0]))
            until(lambda: trains(users[1]), "the other trains", seconds=START_S, story=site.story)
            assert not pilots_of(bed, users[0])
        finally:
            site.stop()
