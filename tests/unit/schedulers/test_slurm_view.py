"""What is made of what Slurm shows: nodes that are ours or not and why, pilots, ends of holes, claims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.model.machine import Claim, Node, NodeState, Pilot, Snapshot
from bftrainer.schedulers.shared.batch import BatchView
from bftrainer.schedulers.shared.claims import Claims, Known
from bftrainer.schedulers.shared.text import TextError
from bftrainer.schedulers.slurm import text as slurm_text
from bftrainer.schedulers.slurm.own_jobs import SlurmOwnJobs
from bftrainer.schedulers.slurm.pilot import SHORTEST_S
from bftrainer.schedulers.slurm.rows import NodeRow, Partition, Reservation, SlurmJobRow, SlurmMachine
from bftrainer.schedulers.slurm.view import SlurmView, interpret, unfit
from tests.support.slurm_samples import DATA, MAIN_JOB, MARK, scontrol_22, scontrol_24

NOW = 1795289515.0
OURS = SlurmOwnJobs("0a1b2c3d", "root", frozenset({"root"}), "backfill")


def machine(*reservations: Reservation, **states: str) -> SlurmMachine:
    """Nodes with these states, in the partitions batch and backfill."""
    rows = {}
    for name, state in states.items():
        base, *flags = state.split("+")
        rows[name] = NodeRow(name, base, frozenset(flags), ("batch", "backfill"), (), "", (), 4, 1000)
    partitions = {
        "batch": Partition("batch", 10, up=True, default=True, max_s=None),
        "backfill": Partition("backfill", 1, up=True, default=False, max_s=3600.0),
    }
    return SlurmMachine(rows, partitions, reservations)


def pilot(number: int, node: str, tag: str, **others: object) -> SlurmJobRow:
    change = {"state": "RUNNING", "nodes": (node,), "partitions": ("backfill",), "user": "root", **others}
    name = f"bftrainer-0a1b2c3d-{tag * 32}"
    return replace(MAIN_JOB, id=str(number), required=node, name=name, **change)  # type: ignore[arg-type]


def pending(number: int, node: str, tag: str, **others: object) -> SlurmJobRow:
    return pilot(number, node, tag, **{"state": "PENDING", "nodes": (), **others})


def why(view: SlurmView) -> dict[str, str]:
    return {node.name: node.why for node in view.snapshot.nodes}


def see(machine_: SlurmMachine, *jobs: SlurmJobRow, ours: SlurmOwnJobs = OURS, **others: object) -> SlurmView:
    return interpret(machine_, jobs, ours, now=NOW, **others)  # type: ignore[arg-type]


def test_nodes_from_which_no_agent_could_call_are_left_alone() -> None:
    """Only where the daemon listens on a loopback address."""
    machine_ = machine(n1="IDLE", n2="IDLE", n3="IDLE", n4="IDLE", n5="IDLE")
    hosts = {"n1": ("10.0.0.1", "n1"), "n2": ("127.0.0.1", "localhost"), "n3": ("10.0.0.3", "login1")}
    hosts |= {"n4": ("login1", "n4"), "n5": ("n5", "n5")}
    rows = {name: replace(row, hosts=hosts[name]) for name, row in machine_.nodes.items()}
    machine_ = replace(machine_, nodes=rows)
    local = replace(OURS, here=frozenset({"login1"}))
    assert set(why(see(machine_)).values()) == {""}
    assert {name for name, reason in why(see(machine_, ours=local)).items() if reason} == {"n1", "n5"}
    assert why(see(machine_, ours=local))["n1"].endswith("set address")
    held = pilot(1, "n1", "a")  # it has reached us, however it did
    assert why(see(machine_, held, ours=local))["n1"] == ""


def test_nodes_of_a_cloud_are_left_alone_unless_a_site_wants_them_kept_up() -> None:
    cloud = machine(n1="IDLE+CLOUD", n2="ALLOCATED+CLOUD", n3="IDLE", n4="IDLE+CLOUD+POWERED_DOWN")
    held = pilot(1, "n2", "a")  # of a daemon that was allowed to
    view = see(cloud, held)
    assert view.snapshot.idle == {"n3"}
    assert why(view)["n1"] == why(view)["n2"] == "cloud: a pilot would keep it up; see slurm_cloud"
    assert see(cloud, replace(MAIN_JOB, id="7")).found.taken == {"n1": "7"}, "main jobs take them first"
    assert see(cloud, held, ours=replace(OURS, cloud=True)).snapshot.idle == {"n1", "n2", "n3"}


def test_a_recorded_machine() -> None:
    jobs, _ = slurm_text.jobs((DATA / "22.05" / "squeue.txt").read_bytes(), MARK)
    view = see(slurm_text.machine((DATA / "22.05" / "scontrol.txt").read_text()), *jobs)
    assert why(view) == {
        **{f"n{i}": "allocated" for i in range(1, 6)},
        "n6": "",  # our pilot is there
        **{f"n{i}": "" for i in range(7, 13)},  # the 8-node job is planned on n7 and n8, ten minutes later
        "n13": "fail",
        "n14": "maintenance+reserved",
        "n15": "down",
        "n16": "drain",
    }
    until = {node.name: node.until for node in view.snapshot.nodes}
    assert until["n6"] == 1795290106.0, "the 8-node job is planned there then"
    assert until["n12"] == 1795289806.0, "a reservation begins there"
    assert until["n9"] is None
    assert view.snapshot.claims == ()
    assert [(p, p.job, p.pending[:5]) for p in view.snapshot.pilots] == [
        (Pilot(tag="a" * 32, node="n6"), "7", "Nodes"),
        (Pilot(tag="7" * 32, node="n7"), "8", "Prior"),
        (Pilot(tag="6" * 32, node="n6"), "2", ""),
    ]
    node = next(n for n in view.snapshot.nodes if n.name == "n9")
    assert (node.partitions, node.features) == (("batch", "backfill"), ("skylake",))


@pytest.mark.parametrize("text", [scontrol_22(), scontrol_24()], ids=["22.05", "24.11"])
def test_exactly_the_idle_nodes_of_both_versions(text: str) -> None:
    idle = see(slurm_text.machine(text)).snapshot.idle
    assert idle == ({"n12"} if text == scontrol_22() else {"n12", "n13"})


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("IDLE", ""),
        ("IDLE+DYNAMIC_NORM", ""),
        ("IDLE+PLANNED", "planned"),
        ("IDLE+POWERED_DOWN", "powered down"),
        ("IDLE+CLOUD+POWERING_UP", "powering up"),
        ("IDLE+POWER_DOWN", "power down"),
        ("IDLE+COMPLETING", "completing"),
        ("IDLE+NOT_RESPONDING", "not responding"),
        ("IDLE+REBOOT_REQUESTED", "reboot requested"),
        ("IDLE+SOMETHING_NEW", "something new"),
        ("IDLE*", "idle*"),
        ("MIXED", "mixed"),
        ("UNKNOWN", "unknown"),
        ("", "no state"),
    ],
)
def test_whatever_is_said_of_a_node_beside_idle_means_hands_off(state: str, said: str) -> None:
    view = see(machine(n1=state))
    assert why(view)["n1"] == said
    assert bool(view.snapshot.idle) is (said == "")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("ALLOCATED", ""),
        ("MIXED", ""),
        ("IDLE", ""),
        ("ALLOCATED+PLANNED", ""),
        ("ALLOCATED+DRAIN", "drain"),
        ("ALLOCATED+NOT_RESPONDING", "not responding"),
        ("ALLOCATED+MAINTENANCE+RESERVED", "maintenance+reserved"),
        ("DOWN", "down"),
    ],
)
def test_a_node_that_we_hold_is_ours_while_it_is_healthy(state: str, said: str) -> None:
    assert why(see(machine(n1=state), pilot(1, "n1", "a")))["n1"] == said


def test_planned_for_our_own_pilot_is_ours() -> None:
    planned = machine(n1="IDLE+PLANNED")
    assert why(see(planned, pending(1, "n1", "a")))["n1"] == ""
    main = replace(MAIN_JOB, id="2", planned=("n1",), start=NOW + 60, count=2, reason="Dependency")
    assert why(see(planned, pending(1, "n1", "a"), main))["n1"] == "planned"


@pytest.mark.parametrize(("in_s", "said"), [(SHORTEST_S, ""), (SHORTEST_S - 1, "planned"), (-60, "planned")])
def test_a_node_that_is_planned_for_later_is_a_hole(in_s: float, said: str) -> None:
    first = replace(MAIN_JOB, id="2", planned=("n1", "n2"), start=NOW + in_s, count=9)
    second = replace(MAIN_JOB, id="3", planned=("n2",), start=NOW + 7200, count=9)
    view = see(machine(n1="IDLE+PLANNED", n2="IDLE+PLANNED", n3="IDLE+PLANNED"), first, second)
    assert why(view) == {"n1": said, "n2": said, "n3": "planned"}, "nobody says until when n3 is free"
    assert [node.until for node in view.snapshot.nodes] == [NOW + in_s, NOW + in_s, None]


def test_a_planned_node_is_left_alone_if_its_job_can_start_now() -> None:
    """The jobs that it waits for have ended before their time."""
    job = replace(MAIN_JOB, id="2", planned=("n1", "n2"), start=NOW + 600, count=2)
    planned = machine(n1="IDLE+PLANNED", n2="IDLE")
    assert why(see(planned, job)) == {"n1": "claimed by job 2", "n2": "claimed by job 2"}
    assert see(machine(n1="IDLE+PLANNED", n2="ALLOCATED"), pilot(1, "n2", "a"), job).snapshot.claims == (
        Claim(job="2", nodes=frozenset({"n2"}), count=1),
    )


def test_where_a_job_is_planned_that_gets_other_nodes_now_ends_no_hole_of_ours() -> None:
    """Slurm's plan may name any that it could preempt: they would go as well."""
    held = machine(n1="ALLOCATED", n2="ALLOCATED", n3="IDLE+PLANNED", n4="ALLOCATED")
    pilots = [pilot(i, f"n{i}", "abd"[i - 1]) for i in (1, 2)]
    job = replace(MAIN_JOB, id="9", planned=("n2", "n3"), start=NOW + 1, count=2)
    waits = replace(MAIN_JOB, id="10", planned=("n1", "n4"), start=NOW + 600, count=9, priority=1)
    view = see(held, *pilots, job, waits)
    assert view.found.users.keys() == {"9"}, "n4 is about to be clear"
    assert [node.until for node in view.snapshot.nodes] == [NOW + 600, None, NOW + 1, NOW + 600]


@pytest.mark.parametrize("state", ["POWER_DOWN", "POWERING_DOWN", "POWERED_DOWN"])
def test_a_pilot_that_comes_when_its_node_is_powered_down_does_not_keep_it(state: str) -> None:
    assert why(see(machine(n1=f"IDLE+{state}"), pending(1, "n1", "a")))["n1"] == state.lower().replace(
        "_", " "
    )


def test_a_job_that_started_between_the_two_commands_is_seen() -> None:
    assert why(see(machine(n1="IDLE"), replace(MAIN_JOB, state="RUNNING", nodes=("n1",))))["n1"] == "job 1"


def test_nodes_that_a_main_job_is_about_to_take_are_left_alone() -> None:
    view = see(machine(n1="IDLE", n2="IDLE", n3="IDLE"), replace(MAIN_JOB, id="17", count=2))
    assert why(view) == {"n1": "claimed by job 17", "n2": "claimed by job 17", "n3": ""}
    assert view.found.jobs == {"17"}
    again = see(
        machine(n1="IDLE", n2="IDLE"),
        replace(MAIN_JOB, id="17", count=2),
        known=Known(lapsed=frozenset({"17"})),
    )
    assert why(again) == {"n1": "", "n2": ""}


def test_claims_on_what_our_pilots_hold() -> None:
    held = machine(n1="ALLOCATED", n2="ALLOCATED", n3="ALLOCATED")
    other = replace(MAIN_JOB, id="8", state="RUNNING", nodes=("n3",))
    view = see(held, pilot(1, "n1", "a"), pilot(2, "n2", "b"), other, replace(MAIN_JOB, id="9", count=1))
    assert view.snapshot.claims == (Claim(job="9", nodes=frozenset({"n1", "n2"}), count=1),)
    leaving = machine(n1="ALLOCATED", n2="IDLE+COMPLETING")
    view = see(leaving, pilot(1, "n1", "a"), replace(MAIN_JOB, id="9", count=1))
    assert view.snapshot.claims == (), "a node is on its way"


def test_what_ends_between_the_two_commands_costs_no_other_pilot() -> None:
    """The node still looks allocated, its job is ending or gone: it is on its way to the main job."""
    held = machine(n1="ALLOCATED", n2="ALLOCATED")
    waiting = replace(MAIN_JOB, id="9", count=1)
    ending = pilot(2, "n2", "b", state="COMPLETING")
    assert see(held, pilot(1, "n1", "a"), ending, waiting).snapshot.claims == ()
    assert see(held, pilot(1, "n1", "a"), waiting).snapshot.claims == ()
    taken = replace(MAIN_JOB, id="8", state="RUNNING", nodes=("n2",))
    assert len(see(held, pilot(1, "n1", "a"), taken, waiting).snapshot.claims) == 1


def test_other_daemons_and_users_pilots_are_not_ours_and_no_main_jobs() -> None:
    theirs = replace(pilot(1, "n1", "a"), name=f"bftrainer-ffffffff-{'a' * 32}")
    waiting = replace(theirs, id="2", state="PENDING", nodes=(), required="")
    joker = replace(pilot(3, "n2", "a"), user="eve")
    wide = replace(pilot(4, "n3", "a"), nodes=("n3", "n4"))
    view = see(
        machine(n1="ALLOCATED", n2="ALLOCATED", n3="ALLOCATED", n4="ALLOCATED"), theirs, waiting, joker, wide
    )
    assert view.snapshot.pilots == ()
    assert view.snapshot.idle == frozenset()
    assert view.snapshot.claims == ()


@pytest.mark.parametrize(
    "name",
    [
        "bftrainer-eval",
        "bftrainer-0a1b2c3d-eval",
        f"bftrainer-0a1b2c3d-{'a' * 31}",
        f"bftrainer-0a1b2c3d-{'a' * 33}",
        f"bftrainer-0A1B2C3D-{'a' * 32}",
        f"bftrainer-my-{'a' * 32}",
        f"my-bftrainer-0a1b2c3d-{'a' * 32}",
    ],
)
def test_a_main_job_whose_name_merely_begins_like_a_pilots_is_a_main_job(name: str) -> None:
    waiting = replace(MAIN_JOB, id="9", count=1, name=name)
    view = see(machine(n1="ALLOCATED"), pilot(1, "n1", "a"), waiting)
    assert view.snapshot.claims == (Claim(job="9", nodes=frozenset({"n1"}), count=1),)
    assert [p.job for p in see(machine(n1="IDLE"), replace(waiting, required="n1")).snapshot.pilots] == []


def test_pilots_of_all_users_in_site_mode() -> None:
    site = replace(OURS, users=None)
    view = see(machine(n1="ALLOCATED"), replace(pilot(1, "n1", "a"), user="ann"), ours=site)
    assert view.snapshot.pilots == (Pilot(tag="a" * 32, node="n1", user="ann"),)


def test_a_pilot_submitted_twice_is_listed_twice() -> None:
    view = see(machine(n1="ALLOCATED"), pilot(1, "n1", "a"), pending(2, "n1", "a", reason="Resources"))
    assert [(p.job, p.pending) for p in view.snapshot.pilots] == [("1", ""), ("2", "Resources")]
    assert len(set(view.snapshot.pilots)) == 1


def test_pilots_that_end_are_gone_and_others_say_why_they_wait() -> None:
    ending = pilot(1, "n1", "a", state="COMPLETING")
    held = pending(2, "n2", "b", reason="QOSMaxJobsPerUserLimit")
    booting = pilot(3, "n3", "c", state="CONFIGURING")
    running = pilot(4, "n4", "d", end=NOW + 5)
    view = see(machine(n1="IDLE", n2="IDLE", n3="ALLOCATED", n4="ALLOCATED"), ending, held, booting, running)
    assert [(p.tag, p.pending, p.ends) for p in view.snapshot.pilots] == [
        ("b" * 32, "QOSMaxJobsPerUserLimit", None),
        ("c" * 32, "configuring", None),
        ("d" * 32, "", NOW + 5),
    ]
    assert view.snapshot.clearing == {Pilot(tag="a" * 32, node="n1", user="")}


def test_a_pilot_that_runs_long_beyond_its_end_has_none_that_we_know() -> None:
    """Slurm's machine has another time: each new pilot would be given back at once, for ever."""
    jobs = (pilot(1, "n1", "a", end=NOW - 80_000), pilot(2, "n2", "b", end=NOW - 30))
    view = see(machine(n1="ALLOCATED", n2="ALLOCATED"), *jobs)
    assert [one.ends for one in view.snapshot.pilots] == [None, NOW - 30]


def test_only_watched_partitions_and_only_where_pilots_can_go() -> None:
    rows = {
        name: replace(machine(n1="IDLE").nodes["n1"], name=name, partitions=of)
        for name, of in {"n1": ("batch", "backfill"), "n2": ("batch",), "n3": ("login",)}.items()
    }
    whole = replace(machine(n1="IDLE"), nodes=rows)
    assert why(see(whole)) == {"n1": ""}
    watching = replace(OURS, watch=frozenset({"batch"}))
    assert why(see(whole, ours=watching)) == {"n1": "", "n2": "not in partition backfill"}


def test_a_partition_that_is_shut_takes_no_pilots() -> None:
    known = machine(n1="IDLE", n2="ALLOCATED")
    shut = replace(known, partitions={"backfill": replace(known.partitions["backfill"], up=False)})
    assert why(see(shut, pilot(1, "n2", "a"))) == {"n1": "partition backfill is not up", "n2": ""}


def test_past_reservations_end_no_hole() -> None:
    past = Reservation("old", NOW - 20, NOW - 10, ("n1",))
    coming = Reservation("new", NOW + 50, NOW + 90, ("n1",))
    view = see(machine(past, coming, n1="IDLE"))
    assert [node.until for node in view.snapshot.nodes] == [NOW + 50]


def test_health_words() -> None:
    row = machine(n1="IDLE+DRAIN+COMPLETING").nodes["n1"]
    assert unfit(row) == "completing+drain"
    gone = replace(row, base="DOWN", flags=frozenset({"NOT_RESPONDING"}))
    assert unfit(gone, held=True) == "down+not responding"


def test_a_partition_that_does_not_exist_is_an_error_and_no_empty_machine() -> None:
    with pytest.raises(TextError, match="no partition 'nope', only backfill, batch"):
        see(machine(n1="IDLE"), ours=replace(OURS, partition="nope"))
    with pytest.raises(TextError, match="no partition 'nope'"):
        see(machine(n1="IDLE"), ours=replace(OURS, watch=frozenset({"batch", "nope"})))


def test_no_pilot_goes_where_main_jobs_could_not_take_its_node() -> None:
    firm = machine(n1="IDLE", n2="ALLOCATED")
    partitions = {name: replace(p, preempted=False) for name, p in firm.partitions.items()}
    firm = replace(firm, partitions=partitions)
    ours = replace(OURS, preempted=True)
    held = pilot(1, "n2", "a")
    assert why(see(firm, held, ours=ours)) == {"n1": "nothing preempts jobs of partition backfill", "n2": ""}
    assert why(see(firm, held)) == {"n1": "", "n2": ""}
    assert why(see(machine(n1="IDLE"), ours=ours)) == {"n1": ""}


def test_a_node_that_nobody_uses_and_no_pilot_may_have_is_unused_and_one_in_use_is_shut_as_well() -> None:
    here = machine(n1="IDLE", n2="ALLOCATED", n3="IDLE+DRAIN")
    level = replace(here, partitions={n: replace(p, tier=1) for n, p in here.partitions.items()})
    found = {node.name: node for node in see(level, ours=replace(OURS, preempted=True)).snapshot.nodes}
    assert {name: node.state for name, node in found.items()} == {"n1": "unused", "n2": "busy", "n3": "busy"}
    (shut,) = {node.shut for node in found.values()}
    assert shut.startswith("nothing preempts jobs of partition backfill; set slurm_mode: window")
    assert {node.shut for node in see(here, ours=replace(OURS, preempted=True)).snapshot.nodes} == {""}
    down = {**here.partitions, "backfill": replace(here.partitions["backfill"], up=False)}
    assert {n.shut for n in see(replace(here, partitions=down)).snapshot.nodes} == {
        "partition backfill is not up; scontrol update PartitionName=... State=UP, or name another in "
        "slurm_partition"
    }


def test_no_pilot_goes_where_no_partition_of_the_node_has_a_higher_tier() -> None:
    level = machine(n1="IDLE", n2="IDLE")
    partitions = {name: replace(p, tier=1) for name, p in level.partitions.items()}
    ours = replace(OURS, preempted=True)
    shut = "nothing preempts jobs of partition backfill"
    assert why(see(replace(level, partitions=partitions), ours=ours)) == {"n1": shut, "n2": shut}
    alone = {**level.nodes, "n2": replace(level.nodes["n2"], partitions=("backfill",))}
    assert why(see(replace(level, nodes=alone), ours=ours)) == {"n1": "", "n2": shut}


@pytest.mark.parametrize("state", ["REVOKED", "DEADLINE", "OUT_OF_MEMORY", "BOOT_FAIL"])
def test_a_job_that_has_ended_or_runs_on_another_cluster_of_a_federation_holds_no_node(state: str) -> None:
    over = replace(MAIN_JOB, state=state, nodes=("n1",), shares=False)
    assert see(machine(n1="IDLE", n2="IDLE"), over).snapshot.idle == {"n1", "n2"}
    running = replace(over, state="RUNNING")
    assert see(machine(n1="IDLE", n2="IDLE"), running).snapshot.idle == {"n2"}


def test_the_main_job_on_a_node_and_when_it_ends_at_the_latest_are_told() -> None:
    runs = replace(MAIN_JOB, state="RUNNING", planned=())
    here = machine(n1="ALLOCATED", n2="MIXED", n3="ALLOCATED", n4="IDLE", n5="DOWN", n6="ALLOCATED")
    found = see(
        here,
        replace(runs, id="7", nodes=("n1", "n2"), end=NOW + 600),
        replace(runs, id="8", nodes=("n2",), end=NOW + 900),
        replace(runs, id="9", nodes=("n3",), end=None),  # without a time limit
        pilot(10, "n6", "a"),
    )
    assert {node.name: (node.job, node.ends) for node in found.snapshot.nodes} == {
        "n1": ("7", NOW + 600),
        "n2": ("8 and 1 more", NOW + 900),
        "n3": ("9", None),
        **dict.fromkeys(("n4", "n5", "n6"), ("", None)),
    }


def test_all_times_of_a_poll_are_moved_to_the_daemons_clock() -> None:
    node = Node(name="n1", state=NodeState.IDLE, until=10.0, ends=20.0)
    last = Snapshot(time=1.0, nodes=(node,), pilots=(Pilot(tag="t", node="n1", ends=30.0),))
    moved = BatchView(last, Claims()).shifted(5.0).snapshot
    (node,), (pilot_there,) = moved.nodes, moved.pilots
    assert (moved.time, node.until, node.ends, pilot_there.ends) == (6.0, 15.0, 25.0, 35.0)
