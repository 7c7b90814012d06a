"""A study beside which nothing changes but where its nodes come from: LSF, and single GPUs."""

from __future__ import annotations

from lsf.emulator import sites
from lsf.emulator.emulator import Emulator
from tests.support.lsf_site import LsfSite
from tests.support.site import Site, always, running
from tests.support.studies import HALVES, assert_halved, let_go, submit_scored
from tests.support.waiting import LONG_S


def test_a_study_halves_to_its_end_on_lsf() -> None:
    with Emulator(site=sites.small(2), cycle_s=0.2) as emulator:
        site = LsfSite(emulator)
        try:
            site.start()
            submit_scored(site, "halves", trials=2, **HALVES)
            assert_halved(site)
        finally:
            site.close()


def test_a_study_halves_to_its_end_on_the_gpus_of_a_node() -> None:
    """Its trials train beside each other there; what is said of them counts GPUs."""
    with running(always("a"), "--gpus", "2", share="gpu") as site:
        trainer = {"nodes": None, "gpus": {"min": 1, "max": 1}, "curve": [[1, 100]]}
        notes = submit_scored(site, "halves", trials=2, trainer=trainer, hold=(20,), **HALVES)
        site.until(lambda: site.get("studies/halves")["nodes"] == 2, LONG_S, "both trials have a GPU")
        site.until(lambda: forecast(site).startswith("3 runs left, done in "), LONG_S, "a forecast")
        assert "with 2 GPUs as now" in forecast(site)
        assert site.get("studies/halves")["unit"] == "GPU"
        let_go(notes, 20)
        assert_halved(site)


def forecast(site: Site) -> str:
    known = site.get("studies/halves")["forecast"]
    return known["text"] if known else ""
