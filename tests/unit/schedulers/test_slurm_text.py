"""What Slurm's commands print, as parsed: real outputs, and hostile ones."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.schedulers.shared.text import TextError
from bftrainer.schedulers.slurm import text as slurm_text
from bftrainer.schedulers.slurm import values
from bftrainer.schedulers.slurm.dialect import SEPARATOR
from tests.support.slurm_samples import DATA, MARK, scontrol_22, scontrol_24


def states(text: str) -> dict[str, str]:
    return {n.name: "+".join([n.base, *sorted(n.flags)]) for n in slurm_text.machine(text).nodes.values()}


EXPECTED = {
    **{f"n{i}": "ALLOCATED" for i in range(1, 8)},
    **{f"n{i}": "IDLE+PLANNED" for i in range(8, 12)},
    "n12": "IDLE",
    "n14": "IDLE+MAINTENANCE+RESERVED",
    "n15": "DOWN",
    "n16": "IDLE+DRAIN",
}


@pytest.mark.parametrize(
    ("text", "n13"), [(scontrol_22(), "IDLE+POWERED_DOWN"), (scontrol_24(), "IDLE")], ids=["22.05", "24.11"]
)
def test_states_of_both_versions(text: str, n13: str) -> None:
    assert states(text) == EXPECTED | {"n13": n13}


def test_the_json_of_24_says_what_its_sinfo_says() -> None:
    rows = [line.split() for line in (DATA / "24.11" / "sinfo-O.txt").read_text().splitlines()]
    listed = {name: full.upper().split("+") for name, _, full in rows}
    assert {name: sorted(words) for name, words in listed.items()} == {
        name: sorted(state.split("+")) for name, state in states(scontrol_24()).items()
    }


def test_reservations_and_partitions() -> None:
    machine = slurm_text.machine(scontrol_22())
    assert [(r.name, r.nodes, r.end - r.start) for r in machine.reservations] == [
        ("mnt", ("n14",), 3600.0),
        ("later", ("n12",), 3600.0),
    ]
    batch, backfill = machine.partitions["batch"], machine.partitions["backfill"]
    assert (batch.tier, batch.default, batch.up, batch.max_s) == (10, True, True, None)
    assert (backfill.tier, backfill.default) == (1, False)


def test_a_whole_answer_with_features_gres_and_prompts() -> None:
    text = (DATA / "22.05" / "scontrol.txt").read_text()
    assert text.startswith("scontrol: ")
    machine = slurm_text.machine(text)
    n1, n13 = machine.nodes["n1"], machine.nodes["n13"]
    assert (n1.features, n1.gpus, n1.cpus, n1.memory_mb) == (("haswell", "ib"), (), 4, 1000)
    assert (n13.features, n13.gres, n13.gpus) == (("skylake",), "gpu:2", (("", 2),))
    assert machine.nodes["n16"].flags == {"DRAIN"}, "its reason says otherwise"
    assert n1.partitions == ("batch", "backfill")


def test_the_queue() -> None:
    rows, odd = slurm_text.jobs((DATA / "22.05" / "squeue.txt").read_bytes(), MARK)
    jobs = {job.id: job for job in rows}
    assert not odd
    assert sorted(jobs) == ["1", "2", "3", "4", "5", "6", "7", "8"]
    main = jobs["3"]
    assert (main.name, main.count, main.limit_s, main.features) == ("main B", 8, 1800.0, "haswell")
    assert main.planned == tuple(f"n{i}" for i in range(1, 9))
    assert (jobs["4"].tasks, jobs["4"].gpus, jobs["4"].reason) == (2, (("", 2),), "BeginTime")
    assert (jobs["5"].excluded, jobs["5"].priority, jobs["5"].start) == ("n9", 0, None)
    assert (jobs["7"].required, jobs["7"].state, jobs["2"].nodes) == ("n6", "PENDING", ("n6",))


def test_a_job_name_with_line_breaks_is_no_job_and_no_node() -> None:
    text = (DATA / "22.05" / "squeue.txt").read_text()
    assert "\nNodeName=n1 State=IDLE" in text
    rows, odd = slurm_text.jobs(text.encode(), MARK)
    assert not odd
    assert next(job for job in rows if job.id == "6").name == "evil"


@pytest.mark.parametrize("missing", ["NodeName=", "PartitionName=", "ReservationName="])
def test_an_answer_with_a_part_missing_is_no_answer(missing: str) -> None:
    lines = [line for line in scontrol_22().splitlines() if not line.startswith(missing)]
    with pytest.raises(TextError, match="scontrol showed no"):
        slurm_text.machine("\n".join(lines))


def test_no_reservations_is_an_answer() -> None:
    lines = [line for line in scontrol_22().splitlines() if not line.startswith("ReservationName=")]
    text = "\n".join([*lines, "scontrol: show reservation", "No reservations in the system"])
    assert slurm_text.machine(text).reservations == ()


def test_a_node_that_is_listed_twice_is_not_believed() -> None:
    text = scontrol_22() + "\nNodeName=n15 State=IDLE Partitions=batch\nNodeName=../x State=IDLE\n"
    machine = slurm_text.machine(text)
    assert machine.nodes["n15"].base == "LISTED_TWICE"
    assert "../x" not in machine.nodes


def test_one_odd_line_hides_no_other_job() -> None:
    text = (DATA / "22.05" / "squeue.txt").read_text()
    rows, odd = slurm_text.jobs(f"{text}\n{MARK}{SEPARATOR}what\n".encode(), MARK)
    assert len(rows) == 8
    assert len(odd) == 1
    with pytest.raises(TextError):
        slurm_text.jobs(f"{MARK}{SEPARATOR}what\n".encode(), MARK)


@given(st.sets(st.integers(1, 400), min_size=1), st.sampled_from(["n{}", "r1n{:03}", "rack{}-a"]))
def test_node_lists_mean_what_clustershell_says(numbers: set[int], form: str) -> None:
    names = {form.format(n) for n in numbers}
    assert set(values.expand(str(NodeSet.fromlist(sorted(names))))) == names


def test_node_lists_of_several_forms() -> None:
    assert values.expand("r[1-2]n[01-02],gpu7") == ("gpu7", "r1n01", "r1n02", "r2n01", "r2n02")
    assert values.expand("(null)") == values.expand("") == ()
    for text in ("n[1-999999999]", "n[0-99999][0-99999]", "n[x]"):
        with pytest.raises(TextError):
            values.expand(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", None),
        ("0:30", 30),
        ("2:00:00", 7200),
        ("1-00:00:00", 86400),
        ("UNLIMITED", None),
        ("N/A", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert values.duration_s(text) == seconds


def test_of_a_flexible_reservation_it_is_known_that_its_jobs_may_be_elsewhere() -> None:
    line = "ReservationName={} StartTime=100 EndTime=200 Nodes=n1 Flags={}\n"
    told = scontrol_22() + line.format("soft", "MAINT,FLEX") + line.format("hard", "MAINT")
    found = {own.name: own.flex for own in slurm_text.machine(told).reservations}
    assert (found["soft"], found["hard"]) == (True, False)


@pytest.mark.parametrize(
    ("said", "used"),
    [
        ("GresUsed=gpu:a100:2(IDX:0-1) AllocTRES=cpu=2", (("a100", 2),)),
        ("GresUsed=gpu:a100:0(IDX:N/A) AllocTRES=cpu=2,gres/gpu=1", ()),
        ("AllocTRES=cpu=2,gres/gpu=2,gres/gpu:a100=2", (("a100", 2),)),
    ],
)
def test_gpus_in_use_are_known_whether_or_not_the_site_accounts_for_them(
    said: str, used: tuple[tuple[str, int], ...]
) -> None:
    node = f"NodeName=n1 CPUAlloc=2 CPUTot=4 Gres=gpu:a100:4 RealMemory=1000 AllocMem=0 State=MIXED {said} "
    shown = f"{node}\nPartitionName=batch State=UP\n{slurm_text.NO_RESERVATIONS}"
    assert slurm_text.machine(shown).nodes["n1"].gpus_used == used
