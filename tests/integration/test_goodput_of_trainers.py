"""Nodes go by goodput: with a real daemon, and trainers whose runs measure the noise of their gradients."""

from __future__ import annotations

import pytest

from tests.support.site import running_at_will
from tests.support.waiting import LONG_S

NAMES = ("quiet", "noisy")


def test_a_trainer_with_small_noise_gets_fewer_nodes_than_one_with_large() -> None:
    with running_at_will(*"abcd", objective="goodput", t_fwd_s=600) as site:
        for name, noise in zip(NAMES, (0.0, 400.0), strict=True):
            site.submit(name, "adapt.py", str(noise), n_max=3, scalability="auto", curve=None)
        site.change(give="abcd")

        def decided() -> bool:
            quiet, noisy = (site.trainer(name) for name in NAMES)
            known = all(t["scalability"]["counts"] == "goodput" for t in (quiet, noisy))
            return known and (len(quiet["members"]), len(noisy["members"])) == (1, 3)

        site.until(decided, LONG_S, "noise decides")
        quiet, noisy = (site.trainer(name)["metrics"] for name in NAMES)
        assert quiet["goodput.noise"] < 1
        assert noisy["goodput.noise"] > 100
        assert quiet["goodput.batch"] < noisy["goodput.batch"]


@pytest.mark.nightly
def test_work_by_progress_ends_after_more_samples_where_a_larger_batch_makes_them_worth_less() -> None:
    with running_at_will("a") as site:
        work = {"progress": 2400}
        site.submit("noisy", "adapt.py", "100", work=work, n_max=1)
        site.change(give="a")
        site.until(
            lambda: (site.trainer("noisy")["work"] or 0) > 2400, LONG_S, "it is known how long it takes"
        )
        ended = site.until_ended("noisy")
        assert ended["status"] == "completed"
        assert 2400 < ended["samples"] < 2400 * 8


def test_who_had_nodes_gives_them_to_who_had_none_also_after_a_restart_of_the_daemon() -> None:
    shares = {"weights_by": "service", "service_threshold_s": 0.1, "service_decay": 10, "t_fwd_s": 600}
    with running_at_will(*"ab", **shares) as site:
        site.submit("first", "steady.py", n_min=2, n_max=2)
        site.change(give="ab")
        site.until_members("first", "a", "b")
        site.kill_daemon()
        site.start()
        site.until_members("first", "a", "b")
        site.submit("second", "steady.py", n_min=2, n_max=2)
        site.until_members("second", "a", "b")
        assert site.trainer("first")["status"] == "waiting"
