"""Single GPUs of hosts on LSF (`share: gpu`): which are ours, what their pilots ask for, and what goes for a
main job."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bftrainer.errors import BftrainerError, NoRoomError, SchedulerError
from bftrainer.model.machine import Claim, Node, Pilot, Slot
from bftrainer.nodes import vacate
from bftrainer.schedulers.lsf.check.findings import single_gpus
from bftrainer.schedulers.lsf.check.single_gpus import why_not
from bftrainer.schedulers.lsf.make import make, observer
from bftrainer.schedulers.lsf.pilot import Named, command, name_of, named
from bftrainer.schedulers.lsf.queue import places
from bftrainer.schedulers.lsf.rows import Gpus, HostRow, LsfJobRow
from bftrainer.schedulers.lsf.view import LsfView, Shown, interpret
from bftrainer.schedulers.shared import pilot_job
from bftrainer.schedulers.shared.claims import Known
from bftrainer.schedulers.shared.pilot_job import Template
from bftrainer.settings.values import Settings
from tests.support.lsf_schedulers import Clock
from tests.unit.schedulers.test_lsf_commands import ANSWERS, polled, scheduler
from tests.unit.schedulers.test_lsf_pilot import JOB, options
from tests.unit.schedulers.test_lsf_view import NOW, OURS, QUEUES, host, job, small, waiting

SINGLE = replace(OURS, gpus=True)
PILOTS = replace(JOB, gpus=True)
A, B = ([f"{name}:{number}" for number in range(4)] for name in "ab")
TAGS = {gpu: digit * 32 for gpu, digit in zip((*A, *B), "01234567", strict=True)}


def own(gpu: str, state: str = "RUN", **more: object) -> LsfJobRow:
    """A pilot of one GPU, with a quarter of its host's 42 slots."""
    name = name_of("0a1b2c3d", Pilot(tag=TAGS[gpu], node=gpu))
    where = () if state == "PEND" else ((gpu[0], places.slots_of(42, 4, gpu)),)
    row = job(f"8{TAGS[gpu][0]}", state, user="bft", queue="killable", name=name)
    return replace(row, **{"hosts": where, **more})  # type: ignore[arg-type]


def look(
    hosts: list[HostRow], *jobs: LsfJobRow, known: Known | None = None, kept: dict[str, str] | None = None
) -> LsfView:
    rows = {row.name: row for row in hosts}
    shown = Shown(rows, jobs, QUEUES, gpus={"a": Gpus(4, "V100"), "b": Gpus(4, "V100")})
    return interpret(shown, SINGLE, now=NOW, known=known, kept=kept)


def full(name: str) -> HostRow:
    return host(name, "closed_Full", 42)


def why(view: LsfView) -> dict[str, str]:
    return {node.name: node.why for node in view.snapshot.nodes}


def claimed(view: LsfView) -> dict[str, list[str]]:
    """Main job -> the GPUs that it costs us; each is claimed for itself."""
    found: dict[str, list[str]] = {}
    for claim in view.snapshot.claims:
        assert (len(claim.nodes), claim.count) == (1, 1)
        found.setdefault(claim.job, []).extend(claim.nodes)
    return found


# what is ours


def test_each_gpu_of_an_idle_host_is_ours_with_an_even_part_of_its_slots() -> None:
    found = look([host("a"), host("c")]).snapshot
    assert [node.name for node in found.nodes] == A, "a host without GPUs gives none"
    assert [node.cpus for node in found.nodes] == [11, 11, 10, 10], "together they leave no slot"
    (one, *_) = found.nodes
    assert (one.gpus, one.gres, one.types, one.why) == (1, "gpu:V100:1", ("V100",), "")
    assert found.idle == set(A)


def test_gpus_beside_our_pilots_are_ours_whatever_lsf_says_of_a_full_host() -> None:
    some = look([host("a", active=21)], own("a:1"), own("a:3"))
    assert some.snapshot.idle == set(A)
    assert [pilot.node for pilot in some.snapshot.pilots] == ["a:1", "a:3"]
    assert look([full("a")], *map(own, A)).snapshot.idle == set(A)


def test_a_host_of_a_main_job_is_busy_with_all_its_gpus() -> None:
    for jobs in ((), (own("a:0"),)):
        view = look([host("a", active=30)], job(hosts=("a",)), *jobs)
        assert why(view) == dict.fromkeys(A, "job 7")
    assert why(look([host("a", "closed_Adm", 11)], own("a:0"))) == dict.fromkeys(A, "closed_Adm")


def test_slots_that_nobody_explains_shut_the_gpus_that_no_pilot_has() -> None:
    """They may be those of a pilot that has ended between the two commands: the others go on."""
    view = look([host("a", active=22)], own("a:0"))
    assert why(view) == {"a:0": "", **dict.fromkeys(A[1:], "in use")}
    assert why(look([host("a", active=1)])) == dict.fromkeys(A, "in use")


def test_a_pilot_that_started_between_the_commands_counts() -> None:
    assert look([host("a")], *map(own, A)).snapshot.idle == set(A)


def test_a_stopped_pilot_has_lost_its_gpu_and_no_other() -> None:
    view = look([host("a", active=22)], own("a:0"), own("a:1", "SSUSP"))
    assert why(view) == {"a:0": "", "a:1": "our pilot there is ssusp", "a:2": "", "a:3": ""}


def test_a_pilot_that_waits_may_start_where_there_are_slots() -> None:
    view = look([host("a", active=11)], own("a:0"), own("a:3", "PEND", reason="Job slot limit reached"))
    assert view.snapshot.idle == set(A)
    assert view.snapshot.pilots[1].pending == "Job slot limit reached"
    large = own("a:0", hosts=(("a", 32),))  # of another number of slots, as after a change of MAX
    view = look([host("a", active=32)], large, own("a:3", "PEND"))
    assert [gpu for gpu, said in why(view).items() if not said] == ["a:0", "a:3"], "it comes first"


def test_a_pilot_that_landed_elsewhere_has_the_gpu_of_that_number_there() -> None:
    view = look([host("a"), host("b", active=10)], own("a:2", hosts=(("batch1", 1), ("b", 10))))
    assert [pilot.node for pilot in view.snapshot.pilots] == ["b:2"]
    assert view.snapshot.idle == {*A, *B}


def test_hosts_with_fewer_slots_than_gpus_give_as_many_as_they_have() -> None:
    assert why(look([replace(host("a"), slots=3)])) == {**dict.fromkeys(A[:3], ""), "a:3": places.NO_SLOT}


def test_pilots_of_whole_hosts_are_seen_and_leave_no_gpu() -> None:
    """As after a change of share, until the daemon has let go of them."""
    whole = replace(own("a:0"), name=name_of("0a1b2c3d", Pilot(tag="9" * 32, node="a")), hosts=(("a", 42),))
    view = look([full("a")], whole)
    assert [pilot.node for pilot in view.snapshot.pilots] == ["a"]
    assert why(view) == dict.fromkeys(A, "in use")
    shown = Shown({"a": host("a", active=11)}, (own("a:0"),), QUEUES)
    nodes = interpret(shown, OURS, now=NOW).snapshot.nodes
    assert [(node.name, node.why) for node in nodes] == [("a", "in use")], "and the other way round"


# main jobs


def test_a_main_job_that_needs_a_host_gets_all_pilots_of_one_and_no_other() -> None:
    view = look([full("a"), host("b", active=21)], *map(own, A), own("b:0"), own("b:3"), waiting("9", 1))
    assert claimed(view) == {"9": ["b:0", "b:3"]}, "fewest go"
    assert why(view)["b:1"] == "claimed by job 9", "no other pilot takes the place of those that go"
    assert view.snapshot.idle == {*A, "b:0", "b:3"}
    assert view.kept == {"b": "9"}


def test_all_that_goes_is_what_the_daemon_gives_up() -> None:
    held = frozenset({*A, "b:0", "b:3"})
    view = look([full("a"), host("b", active=21)], *map(own, (*A, "b:0", "b:3")), waiting("9", 1))
    assert vacate.choose(view.snapshot.claims, held, (), {}) == {"b:0", "b:3"}
    gone = held - {"b:0"}
    assert vacate.choose(view.snapshot.claims, gone, (), {}) == {"b:3"}, "one has ended since"


def test_main_jobs_that_need_several_hosts_get_different_ones() -> None:
    hosts = [full("a"), full("b")]
    both = look(hosts, *map(own, (*A, *B)), waiting("9", 2))
    assert claimed(both) == {"9": [*A, *B]}
    each = look(hosts, *map(own, (*A, *B)), waiting("9", 1), waiting("10", 1))
    assert claimed(each) == {"9": A, "10": B}
    assert look(hosts, *map(own, (*A, *B)), waiting("9", 3)).snapshot.claims == ()


def test_a_main_job_that_fits_beside_pilots_takes_nothing_unless_it_does_not_start() -> None:
    here = [host("a", active=11)], own("a:0"), small("9", 31)
    assert claimed(look(*here)) == {}
    assert claimed(look(*here, known=Known(ready={"9": NOW - 60}))) == {"9": ["a:0"]}
    assert claimed(look([host("a", active=11)], own("a:0"), small("9", 32))) == {"9": ["a:0"]}


def test_a_host_that_was_given_back_is_kept_until_its_job_starts() -> None:
    view = look([host("a"), host("b")], waiting("9", 1), kept={"a": "9"})
    assert why(view) == {**dict.fromkeys(A, "claimed by job 9"), **dict.fromkeys(B, "")}
    assert view.found.jobs == {"9"}, "so that this lapses if it never starts"
    assert view.kept == {"a": "9"}
    lapsed = look([host("a")], waiting("9", 1), kept={"a": "9"}, known=Known(lapsed=frozenset({"9"})))
    assert (lapsed.snapshot.idle, lapsed.kept) == (set(A), {})
    started = look([host("a"), full("b")], job("9", hosts=("b",)), kept={"a": "9"})
    assert started.snapshot.idle == set(A)


def test_claims_of_whole_hosts_stay_as_they_are_where_hosts_are_shared_out() -> None:
    shown = Shown({"a": full("a")}, (replace(own("a:0"), name=f"bftrainer-0a1b2c3d-{'1' * 32}-a"),), QUEUES)
    view = interpret(replace(shown, jobs=(*shown.jobs, waiting("9", 1))), OURS, now=NOW)
    assert view.snapshot.claims == (Claim(job="9", nodes=frozenset({"a"}), count=1),)
    assert view.kept == {}


# pilots


def test_a_pilot_asks_for_one_gpu_and_its_slots() -> None:
    words = options(command(PILOTS, Pilot(tag="0" * 32, node="a01n10:2"), 7, None, gpus=1))
    assert words["-J"] == f"bftrainer-0a1b2c3d-{'0' * 32}.2-a01n10"
    assert named(words["-J"]) == Named("0a1b2c3d", "0" * 32, Slot("a01n10", 2))
    asked = {"-n": "7", "-R": "span[hosts=1]", "-m": "a01n10", "-gpu": "num=1:j_exclusive=yes"}
    assert asked.items() <= words.items()
    assert words["-o"].endswith("/agent-a01n10:2.log")


@pytest.mark.parametrize("node", ["a:", "a:-1", "a:02", "a:x", "a:1:2", "a b:1", ":1", "a:12345", "-x:1"])
def test_names_that_are_no_gpu(node: str) -> None:
    with pytest.raises(SchedulerError, match="is no name of a host or GPU"):
        command(PILOTS, Pilot(tag="0" * 32, node=node), 7, None, gpus=1)


@pytest.mark.parametrize("end", [".02-a", ".-a", ".12345-a", ".2", ".2-", ".2-a:1", ".x-a", ".2.3-a", ":2-a"])
def test_names_that_are_none_of_a_pilot(end: str) -> None:
    assert named(f"bftrainer-0a1b2c3d-{'0' * 32}{end}") is None


def test_whole_hosts_and_gpus_are_not_mixed_up() -> None:
    with pytest.raises(SchedulerError, match=r"'a:1' is no name of a host$"):
        command(JOB, Pilot(tag="0" * 32, node="a:1"), 7, None, gpus=1)
    for node, gpus in (("a", 4), ("a:1", 0)):
        with pytest.raises(NoRoomError, match="no such GPU is known to be free"):
            command(PILOTS, Pilot(tag="0" * 32, node=node), 7, None, gpus=gpus)


# what the daemon refuses


@pytest.mark.parametrize(
    ("said", "settings"),
    [
        ("with lsf_submission: easy LSF gives a pilot a whole host", {"lsf_submission": "easy"}),
        ("lsf_submission: expert .*; set lsf_submission: plain, or leave", {"lsf_submission": "expert"}),
        ("lsf_gpus: 0 says that hosts have no GPUs; leave lsf_gpus out", {"lsf_gpus": 0}),
        ("lsf_options asks for -gpu 'num=4'; write num=1", {"lsf_options": "-gpu num=4"}),
        ("asks for -gpu 'num=1/task'", {"lsf_options": "-gpu num=1/task"}),
        ("asks for -gpu '-'", {"lsf_options": "-G g -gpu -"}),
    ],
)
def test_settings_with_which_pilots_have_no_single_gpus(
    tmp_path: Path, said: str, settings: dict[str, Any]
) -> None:
    own = Settings(share="gpu", scheduler="lsf", state_dir=tmp_path, **settings)
    with pytest.raises(BftrainerError, match=f"share: gpu: .*{said}"):
        make(SimpleNamespace(settings=own, agents_at="127.0.0.1:1", clock=None))  # type: ignore[arg-type]
    asyncio.run(observer(own, Clock()).close())  # it only looks, at whole hosts


@pytest.mark.parametrize("words", ["", "-gpu num=1", "-gpu mode=shared:num=1/host:j_exclusive=no -G g"])
def test_plain_lsf_gives_single_gpus(words: str) -> None:
    assert why_not(Settings(share="gpu", scheduler="lsf", lsf_options=words)) == ""
    assert why_not(Settings(share="node", scheduler="lsf", lsf_submission="easy")) == ""


# the scheduler and the check


TWO = "printf 'HOST_NAME GPU_ID MODEL\\na 0 V100\\n  1 V100\\n'"


def test_a_poll_shows_gpus_and_a_pilot_gets_what_it_showed(tmp_path: Path) -> None:
    both = f'case "$*" in *-gpu*) {TWO};; *) {ANSWERS["bhosts"]};; esac'
    made = scheduler(tmp_path, gpus=True, bhosts=both)
    made._job = replace(made._job, template=Template(pilot_job.find("lsf-pilot.sh.j2")))

    async def story() -> tuple[tuple[Node, ...], list[str]]:
        nodes = (await made.poll()).nodes
        request = made.request(Pilot(tag="0" * 32, node="a:1"), "secret")
        script = request.stdin
        assert "* 500 / 1000" in script and "OMP_NUM_THREADS" in script, "of the host's cores the half"
        with pytest.raises(NoRoomError, match="a:2: no such GPU"):
            made.request(Pilot(tag="0" * 32, node="a:2"), "secret")
        await made.close()
        return nodes, request.words

    nodes, words = asyncio.run(story())
    assert [(node.name, node.why) for node in nodes] == [("a:0", ""), ("a:1", "")]
    assert {"-n": "21", "-m": "a", "-gpu": "num=1:j_exclusive=yes"}.items() <= options(words).items()


def test_a_poll_that_tells_of_no_gpu_at_all_fails_and_gives_up_no_pilot(tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match="neither bhosts -gpu nor lshosts -gpu tells of a GPU"):
        polled(scheduler(tmp_path, gpus=True))


@pytest.mark.parametrize(
    ("each", "found", "level", "said"),
    [
        (4, {"a": Gpus(4), "b": Gpus(0)}, "ok", "1 with 4, 1 with 0; those without any are not used"),
        (1, {"a": Gpus(4), "b": Gpus(4)}, "warning", "set gpus_per_node: 4"),
        (4, {"a": Gpus(4), "b": Gpus(2), "c": Gpus(4)}, "warning", "have trainers ask for gpus"),
        (4, {}, "wrong", "no host has GPUs"),
    ],
)
def test_the_check_tells_whether_gpus_per_node_is_right(
    each: int, found: dict[str, Gpus], level: str, said: str
) -> None:
    settings = Settings(scheduler="lsf", share="gpu", gpus_per_node=each)
    (finding,) = single_gpus(settings, found, sorted({"a", "b", *found}))
    assert finding.level.value == level
    assert said in f"{finding.found}; {finding.remedy}"


def test_the_check_tells_what_the_daemon_refuses() -> None:
    (finding,) = single_gpus(Settings(scheduler="lsf", share="gpu", lsf_submission="easy"), {}, ["a"])
    assert finding.level.value == "wrong" and "lsf_submission: easy" in finding.found
    assert single_gpus(Settings(scheduler="lsf"), {"a": Gpus(4)}, ["a"]) == []
