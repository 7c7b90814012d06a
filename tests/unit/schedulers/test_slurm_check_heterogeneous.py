"""What the check of a site says of heterogeneous jobs, for which Slurm may preempt pilots."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bftrainer.model.finding import Finding, Level
from bftrainer.schedulers.slurm.check.heterogeneous import components, finding, heterogeneous, preempting
from bftrainer.settings.sources import load
from bftrainer.settings.values import Settings
from tests.support.slurm_commands import Commands

PARTITIONS = {
    "batch": {"PriorityTier": "10"},
    "low": {"PriorityTier": "1"},
    "backfill": {"PriorityTier": "1"},
}
PRIO = {"PreemptType": "preempt/partition_prio"}
BY_QOS = {"PreemptType": "preempt/qos", "AuthInfo": "socket=/x,cred_expire=20"}
QUEUE = "7+0|batch|normal\n7+1|batch|normal\n8|batch|normal\n9_[1-3]|batch|normal\n"
LISTS = "normal|bftrainer\nnormal-het|\nbftrainer|\nhigh|normal,bftrainer\n"


def settings(**given: object) -> Settings:
    return load(
        {"scheduler": "slurm", "slurm_partition": "backfill", "slurm_mode": "preempt", **given},
        environ={"XDG_CONFIG_HOME": "/none", "BFTRAINER_SITE_CONFIG": "/none"},
    )


def found(config: dict[str, str], queue: str, lists: str | None = LISTS) -> Finding:
    preempts = None if lists is None else preempting(lists)
    return finding(settings(slurm_qos="bftrainer"), config, PARTITIONS, components(queue), preempts)


def test_partitions_of_a_higher_tier_preempt_pilots_for_them() -> None:
    said = found(PRIO, QUEUE + "12+0|low,batch|normal\n")
    assert said.level is Level.WARNING
    assert (
        said.found.startswith("2 in the queue or the last day, such as 12, may preempt")
        and "121 s" in said.found
    )
    assert "bftrainer-qos.conf" in said.remedy and "window" in said.remedy
    assert found(PRIO, QUEUE.replace("batch", "low")).level is Level.OK


def test_a_twin_of_their_qos_preempts_none() -> None:
    said = found(BY_QOS, QUEUE)
    assert (
        said.level is Level.WARNING and "21 s" in said.found and "bftrainer-heterogeneous.sh" in said.remedy
    )
    assert found(BY_QOS, QUEUE.replace("normal", "normal-het")).level is Level.OK
    assert found(BY_QOS, QUEUE, None).level is Level.NOT_CHECKED


def test_a_site_without_such_jobs_or_without_preemption_is_all_right() -> None:
    for config, queue in ((PRIO, "8|batch|normal\n"), (BY_QOS, ""), ({"PreemptType": "preempt/none"}, QUEUE)):
        assert found(config, queue).level is Level.OK


def test_queue_and_accounting_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands(tmp_path)
    for name, printed in (("squeue", "8|batch|normal"), ("sacct", "7+1|batch|normal"), ("sacctmgr", LISTS)):
        commands.set(name, f"cat <<'.'\n{printed}\n.")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    site = {**BY_QOS, "AccountingStorageType": "accounting_storage/slurmdbd"}

    def said(mode: str, config: dict[str, str]) -> Finding:
        asked = settings(slurm_mode=mode, slurm_qos="bftrainer")
        return asyncio.run(heterogeneous(asked, config, PARTITIONS))

    assert said("preempt", site).level is Level.WARNING
    assert said("preempt", PRIO).level is Level.OK, "without accounting there is the queue alone"
    assert said("window", site).level is Level.OK
    commands.set("sacctmgr", "exit 1")
    assert said("preempt", site).level is Level.NOT_CHECKED
