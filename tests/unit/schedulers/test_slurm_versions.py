"""One rich situation as three versions of Slurm printed it: what we read is the same, whatever the words.

squeue.txt of 26.05 is in the words that it is asked with; of its values, `Exclusive` comes from what scontrol
showed of the same jobs.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from bftrainer.errors import SchedulerError
from bftrainer.model.finding import Level
from bftrainer.schedulers.shared.text import TextError
from bftrainer.schedulers.slurm import dialect, text, values
from bftrainer.schedulers.slurm.check import accounting, check, versions
from bftrainer.schedulers.slurm.check.partitions import of_config, of_lines, partition_findings
from bftrainer.schedulers.slurm.check.processes import process_findings
from bftrainer.schedulers.slurm.own_jobs import SlurmOwnJobs
from bftrainer.schedulers.slurm.rows import SlurmJobRow, SlurmMachine
from bftrainer.schedulers.slurm.view import SlurmView, interpret
from bftrainer.settings.sources import load
from tests.support.slurm_commands import ANSWERS, Commands
from tests.support.slurm_samples import DATA, MAIN_JOB

SLURM_MD = Path(__file__).parents[3] / "docs" / "evidence" / "slurm.md"
VERSIONS = ("22.05", "24.11", "26.05")
MARK = "f00dfeedf00dfeed"
ALONE = {"takes the pilot's", "behind", "big", "contiguous", "urgent", "parray", "hetpending"}
EVERY = pytest.mark.parametrize("version", VERSIONS)


def recorded(version: str, name: str) -> str:
    return (DATA / f"rich-{version}" / name).read_text()


def asked(version: str) -> dialect.Dialect:
    return dialect.of_version(dialect.version(recorded(version, "scontrol-config.txt")))


@lru_cache
def machine(version: str) -> SlurmMachine:
    return text.machine(recorded(version, "scontrol-machine.txt"))


@lru_cache
def queue(version: str) -> tuple[SlurmJobRow, ...]:
    rows, odd = text.jobs(recorded(version, "squeue.txt").encode(), MARK, "", asked(version))
    assert not odd
    return rows


def unfree(view: SlurmView, name: str) -> str:
    """Why a node is not ours; "" if it is."""
    node = view.node(name)
    assert node
    return node.why


def view(version: str) -> SlurmView:
    now = max(job.start or 0 for job in queue(version) if job.state == "RUNNING") + 5
    return interpret(
        machine(version), queue(version), SlurmOwnJobs("0a1b2c3d", "root", None, "backfill"), now=now
    )


def part(job: SlurmJobRow) -> str:
    """What tells tasks of an array and parts of a heterogeneous job apart."""
    return re.sub(r"^\d+", "", job.id)


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    yield Commands(tmp_path)


@EVERY
def test_a_version_is_asked_in_its_words(version: str) -> None:
    known = dialect.version(recorded(version, "scontrol-config.txt"))
    assert known in dialect.TRIED and dialect.named(known) == version
    (variable, form), *others = asked(version).request(MARK).items()
    assert not others
    if version == "26.05":
        assert variable == "SQUEUE_FORMAT2"
        assert form.startswith(f"JobArrayID:\x1f{MARK}\x1f,Partition:\x1f,") and form.endswith(",Name:64")
        assert ",Exclusive:\x1f," in form
        digits = asked(version).request("0123456789abcdef")[variable].removesuffix(":64")
        assert not re.search(r":[.\d]", digits), "they would be a width"
    else:
        assert (variable, form.split("\x1f")) == ("SQUEUE_FORMAT", [MARK, *text.FIELDS])


@EVERY
def test_nodes_are_what_sinfo_calls_them(version: str) -> None:
    idle = {node for node, row in machine(version).nodes.items() if (row.base, row.flags) == ("IDLE", set())}
    said = dict(line.split()[:2] for line in recorded(version, "sinfo-N-states.txt").splitlines()[1:])
    assert idle == {name for name, short in said.items() if short == "idle"}
    assert said.keys() == machine(version).nodes.keys()
    for name, row in machine(version).nodes.items():
        assert ("CLOUD" in row.flags) == name.startswith("c")
        known = {"mix": "MIXED", "allo": "ALLOCATED", "idle": "IDLE", "down": "DOWN"}
        assert known.get(said[name][:4].rstrip("-#*~@"), row.base) == row.base
        assert not row.flags - dialect.NODE_FLAGS and row.base in dialect.NODE_STATES


@EVERY
def test_jobs_are_what_json_calls_them(version: str) -> None:
    shown = {str(job["job_id"]): job for job in json.loads(recorded(version, "squeue.json"))}
    plain = [job for job in queue(version) if not part(job)]
    assert len(plain) >= 20
    for job in plain:
        known = shown[job.id]
        states = known["job_state"]
        assert job.state in ([states] if isinstance(states, str) else states)
        assert (job.user, ",".join(job.partitions)) == (known["user_name"], known["partition"])
        assert job.nodes == values.expand(known["nodes"])
        assert (job.required, job.excluded) == (known["required_nodes"], known["excluded_nodes"])
        assert (job.all_cpus, job.priority) == (known["cpus"], known["priority"])
        assert job.limit_s == 60 * known["time_limit"]
        assert job.contiguous == bool(known["contiguous"])


@EVERY
def test_who_has_nodes_alone(version: str) -> None:
    assert {job.shares for job in queue(version)} == {True, False}
    assert {job.name for job in queue(version) if not job.shares} == ALONE


@EVERY
def test_the_same_jobs_stand_in_every_queue(version: str) -> None:
    def told(job: SlurmJobRow) -> SlurmJobRow:
        """A job without what differs from run to run."""
        return replace(job, id="", start=None, end=None, submitted=None, reason="", planned=())

    first = {(job.name, part(job)): told(job) for job in queue("22.05")}
    these = {(job.name, part(job)): told(job) for job in queue(version)}
    assert len(first.keys() & these.keys()) >= len(first) - 1
    assert {key: first[key] for key in first.keys() & these.keys()} == {
        key: these[key] for key in first.keys() & these.keys()
    }


@EVERY
def test_the_whole_machine(version: str) -> None:
    seen = view(version)
    assert {node.name for node in seen.snapshot.nodes if not node.why} == set(), seen.snapshot.nodes
    assert machine(version).partitions == machine("22.05").partitions
    assert [(own.name, own.nodes, own.flex) for own in machine(version).reservations] == [
        (own.name, own.nodes, own.flex) for own in machine("22.05").reservations
    ]


@EVERY
@pytest.mark.parametrize(("state", "said"), [("down", "slurmctld is down"), ("hung", "does not answer")])
def test_without_slurmctld_there_is_no_machine(
    version: str, state: str, said: str, commands: Commands
) -> None:
    folder = DATA / f"rich-{version}"
    fails = "cat {0}.txt; grep -v ^exit {0}.txt.err >&2; exit 1"
    with pytest.raises(TextError):
        text.machine(recorded(version, f"{state}-scontrol.txt"))
    shown = recorded(version, "scontrol-config.txt")
    (commands.folder / "config").write_text(shown)
    commands.set("scontrol", ANSWERS + "cat > /dev/null;" + fails.format(folder / f"{state}-scontrol"))
    with pytest.raises(SchedulerError, match=said):
        asyncio.run(commands.scheduler().poll())
    commands.set("scontrol", f"{ANSWERS}cat > /dev/null; cat {folder / 'scontrol-machine.txt'}")
    commands.set("squeue", fails.format(folder / f"{state}-squeue"))
    with pytest.raises(SchedulerError, match=said):
        asyncio.run(commands.scheduler().poll())


@EVERY
def test_a_poll_asks_in_the_versions_words_and_reads_the_answer(version: str, commands: Commands) -> None:
    folder = DATA / f"rich-{version}"
    (commands.folder / "config").write_text(recorded(version, "scontrol-config.txt"))
    commands.set("scontrol", f"{ANSWERS}cat > /dev/null; cat {folder / 'scontrol-machine.txt'}")
    mark = "mark=$(echo $SQUEUE_FORMAT$SQUEUE_FORMAT2 | sed 's/^JobArrayID:.//' | cut -c1-16)"
    commands.set("squeue", f'{mark}; sed "s/{MARK}/$mark/" {folder / "squeue.txt"}')
    scheduler = commands.scheduler()
    snapshot = asyncio.run(scheduler.poll())
    assert snapshot.waiting == {job.id for job in queue(version) if job.state == "PENDING"}
    commands.set("squeue", f'{mark}; sed "s/{MARK}/$mark/" {folder / "squeue.txt"} | head -1')
    assert asyncio.run(scheduler.pilots()) == ()


@EVERY
def test_what_accounting_says(version: str) -> None:
    printed = recorded(version, "sacct-project.txt")
    rows = [line.split("|", 2) for line in printed.splitlines()]
    begun = {
        name: float(start) for start, _, name in (row for row in rows if len(row) == 3) if start.isdecimal()
    }
    pilots = {name for name in begun if name.startswith("bftrainer-")}
    assert pilots and len(begun) >= 10
    last = max(begun.values())
    found = accounting.read(printed, 0, "", last)
    assert found.started == sum(at >= last for name, at in begun.items() if name not in pilots) > 0
    assert not found.why


# the table in docs/evidence/slurm.md

SAID = re.search(
    r"(?ms)^\| what \|(?P<versions>.*?)$\n\|[-|]+\n(?P<rows>(?:^\|.*?$\n)+)", SLURM_MD.read_text()
)


def table(version: str) -> dict[str, list[str]]:
    """The words of a version in the table, by what they mean."""
    assert SAID is not None
    column = [cell.strip() for cell in SAID["versions"].strip("| ").split("|")].index(version) + 1
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in SAID["rows"].splitlines()]
    return {row[0].removeprefix("... "): re.findall(r"`([^`]+)`", row[column]) for row in rows}


@EVERY
def test_the_table_says_what_is_asked_and_what_was_recorded(version: str) -> None:
    words, known = table(version), asked(version)
    assert words.pop("squeue's format") == [known.variable]
    assert words.pop("who shares nodes is told by")[0] in next(iter(known.request(MARK).values()))
    for name, shares in (("a job that does", True), ("a job that has its nodes alone", False)):
        assert words.pop(name) == [word for word, so in known.shares.items() if so is shares]
    files = {
        "a partition whose jobs have nodes alone": "scontrol-partition.txt",
        "a plugin that is not set": "scontrol-config.txt",
        "a node that is planned for a job": "scontrol-machine.txt",
        "why a job waits for reserved nodes": "squeue.txt",
        "slurmctld is down": "down-squeue.txt.err",
        "slurmctld hangs": "hung-squeue.txt.err",
    }
    assert words.keys() == files.keys()
    for name, (word,) in words.items():
        assert word in recorded(version, files[name]), name


# words that only a later Slurm has

BATCH = "NodeName={} State={} Partitions=batch,backfill CPUTot=4 RealMemory=1000 CPUAlloc={}\n"
REST = (
    "No reservations in the system\nPartitionName=batch State=UP PriorityTier=10 Default=YES\n"
    "PartitionName=backfill State=UP PriorityTier=1 PreemptMode=CANCEL\n"
)
PILOT = replace(
    MAIN_JOB, id="7", partitions=("backfill",), state="RUNNING", name="bftrainer-0a1b2c3d-" + "a" * 32
)


def claims(job: SlurmJobRow, nodes: str, *held: str) -> SlurmView:
    pilots = [replace(PILOT, id=f"7{i}", nodes=(name,), user="root") for i, name in enumerate(held)]
    ours = SlurmOwnJobs("0a1b2c3d", "root", None, "backfill")
    return interpret(text.machine(nodes + REST), [*pilots, job], ours, now=0.0)


def test_a_job_that_may_share_or_not_gets_what_both_need() -> None:
    """On n1 another main job has a core: there only one that shares starts, on n2 either."""
    other = replace(MAIN_JOB, id="5", state="RUNNING", nodes=("n1",), shares=True)
    nodes = BATCH.format("n1", "MIXED", 1) + BATCH.format("n2", "ALLOCATED", 4)
    pilot = replace(PILOT, nodes=("n2",), user="root")
    for shares, claimed in ((True, False), (False, True), (None, True)):
        job = replace(MAIN_JOB, shares=shares)
        ours = SlurmOwnJobs("0a1b2c3d", "root", None, "backfill")
        found = interpret(text.machine(nodes + REST), [other, pilot, job], ours, now=0.0)
        assert bool(found.snapshot.claims) is claimed, shares
    large = replace(MAIN_JOB, shares=None, count=2)
    assert claims(large, nodes, "n2").snapshot.claims, "n1 would do if it shares nodes"


@pytest.mark.parametrize(("word", "shares"), [("NO", True), ("NODE", False), ("", None), ("RACK", None)])
def test_words_of_sharing(word: str, shares: bool | None) -> None:
    fields = dict.fromkeys(text.FIELDS, "") | {"%h": word}
    line = dialect.SEPARATOR.join(["7", MARK, *list(fields.values())[1:]])
    (row,), _ = text.jobs(line.encode(), MARK, "", dialect.WORDS)
    assert (row.id, row.shares) == ("7", shares)


@pytest.mark.parametrize(("nodes", "state"), [("", "PENDING"), ("(null)", "PENDING"), ("n1", "TELEPORTED")])
def test_a_job_in_a_state_of_a_later_slurm_waits_or_has_its_nodes(nodes: str, state: str) -> None:
    fields = dict.fromkeys(text.FIELDS, "") | {"%i": "7", "%T": "TELEPORTED", "%N": nodes}
    (row,), _ = text.jobs(dialect.SEPARATOR.join([MARK, *fields.values()]).encode(), MARK)
    assert row.state == state


@pytest.mark.parametrize("state", ["IDLE+SPARKLING", "SPARKLING", "ALLOCATED+SPARKLING"])
def test_a_node_in_a_state_of_a_later_slurm_is_not_ours_but_may_be_a_main_jobs(state: str) -> None:
    nodes = BATCH.format("n1", state, 0) + BATCH.format("n2", "ALLOCATED", 4)
    alone = claims(MAIN_JOB, nodes, "n2")
    assert unfree(alone, "n1") and [claim.nodes for claim in alone.snapshot.claims] == [{"n2"}]
    both = claims(replace(MAIN_JOB, count=2, all_cpus=2), nodes, "n2")
    assert [claim.nodes for claim in both.snapshot.claims] == [{"n2"}], "it could start on both"


@pytest.mark.parametrize(
    ("mode", "held"), [("CANCEL", True), ("GANG,SUSPEND", True), ("OFF", False), ("SOON", False)]
)
def test_a_partition_of_an_unknown_preempt_mode_is_taken_to_preempt_nothing(mode: str, held: bool) -> None:
    shown = text.machine(
        (BATCH.format("n1", "IDLE", 0) + REST).replace("PreemptMode=CANCEL", f"PreemptMode={mode}")
    )
    ours = SlurmOwnJobs("0a1b2c3d", "root", None, "backfill", preempted=True)
    assert (unfree(interpret(shown, [], ours, now=0.0), "n1") == "") is held


@pytest.mark.parametrize("config", ["", "SLURM_VERSION = later\n", "SLURM_VERSION           = 30.11.1\n"])
def test_an_unknown_version_is_asked_as_the_last_one(config: str) -> None:
    assert dialect.of_version(dialect.version(config)) is dialect.WORDS


# what the check of a site says


MUNGE = {"munge": True, "listen_users": "0.0.0.0:7465"}


def findings(version: str, config: str = "", **given: object) -> dict[str, tuple[Level, str]]:
    """Those on a version's recorded machine, with other lines of its configuration."""
    known = of_config(recorded(version, "scontrol-config.txt") + config)
    partitions = of_lines(recorded(version, "scontrol-partition.txt"), "PartitionName")
    own = load(
        {"scheduler": "slurm", "slurm_partition": "backfill", **given},
        environ={"XDG_CONFIG_HOME": "/none", "BFTRAINER_SITE_CONFIG": "/none"},
    )
    qos = versions.qos_of("normal|\nbftrainer|00:00:00\nspared|00:02:00\n")
    found = [
        *partition_findings(own, known, partitions),
        *check.hook_findings(known),
        *check.config_findings(known),
        *process_findings(known),
        *versions.version_findings(own, known, partitions, qos),
    ]
    assert not any("(null)" in finding.found for finding in found)
    return {finding.check: (finding.level, finding.found) for finding in found}


@EVERY
def test_a_tried_version_is_fine_and_its_scheduler_not_slow(version: str) -> None:
    found = findings(version)
    assert found["slurm"] == (Level.OK, f"version {version}.{found['slurm'][1][14]}, cluster testbed")
    assert "slurm SchedulerParameters" not in found, "sched_min_interval=0 is no delay"
    assert found["slurm preemption"][0] is found["slurm PreemptExemptTime"][0] is Level.OK
    assert found["slurm partition"] == (Level.OK, "backfill is up, with 16 nodes")
    assert ("slurm cgroup" in found, "slurm AuthType" in found) == (version != "22.05",) * 2


@EVERY
def test_an_exclusive_partition_is_found_in_every_versions_words(version: str) -> None:
    assert "slurm OverSubscribe" not in findings(version)
    assert findings(version, harvest="gpus")["slurm OverSubscribe"][0] is Level.WRONG


@pytest.mark.parametrize(
    ("config", "level", "said"),
    [
        ("SLURM_VERSION = 25.05.1\n", Level.OK, "lies between"),
        ("SLURM_VERSION = 30.11.1\n", Level.WARNING, "tried on 22.05, 24.11, 26.05"),
        ("SLURM_VERSION = 21.08.8\n", Level.WARNING, "may not know all words"),
        ("SLURM_VERSION = newest\n", Level.WARNING, "version newest"),
    ],
)
def test_an_unknown_version_is_told(config: str, level: Level, said: str) -> None:
    found = findings("26.05", config)["slurm"]
    assert found[0] is level and said in found[1]


@pytest.mark.parametrize(
    ("config", "given", "name", "level", "said"),
    [
        ("PreemptExemptTime = 00:05:00\n", {}, "PreemptExemptTime", Level.WARNING, "300 s"),
        ("", {"slurm_qos": "spared"}, "PreemptExemptTime", Level.WARNING, "of the QOS spared"),
        ("CgroupPlugin = disabled\n", {}, "cgroup", Level.WARNING, "bound its memory"),
        ("CgroupPlugin = cgroup/v2\n", {}, "cgroup", Level.OK, "needs systemd"),
        ("AuthType = auth/slurm\n", {}, "AuthType", Level.OK, "sbatch alone"),
        ("AuthType = auth/slurm\n", MUNGE, "AuthType", Level.WARNING, "users' commands need it"),
        ("", MUNGE, "AuthType", Level.OK, "auth/munge"),
        ("SchedulerParameters = sched_min_interval=9000\n", {}, "SchedulerParameters", Level.WARNING, "9000"),
        ("SchedulerParameters = batch_sched_delay=20\n", {}, "SchedulerParameters", Level.WARNING, "20"),
    ],
)
def test_what_later_versions_changed(
    config: str, given: dict[str, object], name: str, level: Level, said: str
) -> None:
    found = findings("26.05", config, **given)[f"slurm {name}"]
    assert found[0] is level and said in found[1]


@pytest.mark.parametrize(
    ("version", "allowed", "qos", "level", "said"),
    [
        ("26.05.5", "bftrainer", "bftrainer", Level.OK, "exists"),
        ("26.05.5", "bftrainer,gone", "bftrainer", Level.WRONG, "slurmctld ends"),
        ("24.11.5", "bftrainer,gone", "bftrainer", Level.WARNING, "from 26.05 on"),
        ("26.05.5", "bftrainer", "", Level.WRONG, "pilots have no QOS"),
    ],
)
def test_qos_that_a_partition_lets_in(version: str, allowed: str, qos: str, level: Level, said: str) -> None:
    partitions = {"backfill": {"AllowQos": allowed}, "batch": {"AllowQos": "ALL"}}
    own = load(
        {"scheduler": "slurm", "slurm_partition": "backfill", "slurm_qos": qos},
        environ={"XDG_CONFIG_HOME": "/none", "BFTRAINER_SITE_CONFIG": "/none"},
    )
    config = {"SLURM_VERSION": version}
    found = versions.version_findings(own, config, partitions, {"normal": 0.0, "bftrainer": 0.0})
    assert any(f.check == "slurm AllowQos" and f.level is level and said in f.found for f in found)
    unasked = versions.version_findings(own, config, partitions, None)
    assert any(f.check == "slurm AllowQos" and f.level is Level.NOT_CHECKED for f in unasked)
