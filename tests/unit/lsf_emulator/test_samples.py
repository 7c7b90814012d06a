"""Outputs of real LSF installations, which the emulator prints byte for byte."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lsf.emulator.core.model import Closed, Demand, Host, Queue, Request, Site
from lsf.emulator.manners import Manners
from lsf.emulator.text import acct, bhosts, bjobs, columns, job_fields, jobstat, plan
from lsf.emulator.text.bslots import rows as windows
from tests.support.lsf_clusters import whole
from tests.support.lsf_questions import Desk, moment
from tests.support.lsf_samples import FOLDER, sample

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded outputs in {FOLDER}")
TESTS = Path(__file__).parents[1]
NOT_READ = {"bhosts_l_ibm.txt", "lshosts_lsload.txt"}
"""People read `bhosts -l`, of which bftrainer asks for the short form; and loads, which place no job."""
NOT_PRINTED = {"README.md", "lsb.acct.JOB_FINISH.10.108.txt"}
"""Of two versions of a record the emulator writes the earlier one."""
NORMAL = Queue(name="normal", priority=30)


def site(*hosts: Host, queue: Queue = NORMAL, **more: object) -> Site:
    return Site(hosts=hosts, queues=(queue,), default_queue=queue.name, **more)  # type: ignore[arg-type]


def one_line(text: str) -> str:
    """A wrapped text without its breaks and runs of spaces: where the sample's own breaks were lost."""
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize(
    ("asked", "begin", "free", "needed", "reserved_s", "closes_s"),
    [
        ('bslots -R"select[CN]"\n', 1, 652, 699, 4310, 92571),
        ('bslots -R"select[CN]" -n $((1000*42)) -W10\n', 6, 3042, 4608, 1375, 0),
    ],
)
def test_bslots_of_summit(
    asked: str, begin: int, free: int, needed: int, reserved_s: int, closes_s: int
) -> None:
    said = sample("bslots_summit.txt").splitlines(keepends=True)
    assert said[begin - 1] == f"$ {asked}"
    count = max(needed, 700) if closes_s else 4608
    hosts = (Host(name="batch1", launch=True), *(Host(name=f"h{n}") for n in range(count)))
    desk = Desk(site(*hosts, closes_at=closes_s), now=0.0)
    desk.cluster.submit(whole(count - free, 9e5, reserved_s, queue="normal"), 0.0)
    desk.cluster.submit(whole(needed, 60, 60, queue="normal"), 0.0)
    words = asked.replace('"', "").replace("$((1000*42))", "42000").split()
    end = begin + (3 if closes_s else 2)
    assert desk.ask(words[0], *words[1:]).out == "".join(said[begin:end])


def test_bslots_of_an_idle_host() -> None:
    assert Desk(site(Host(name="h", slots=2))).ask("bslots").out == sample("bslots_unlimited.txt")
    assert windows([(2, None)]) == sample("bslots_unlimited.txt")


def test_bslots_with_hosts() -> None:
    said = sample("bslots_l_wrapped_cosma.txt").splitlines(keepends=True)[1:]
    hosts = [Host(name=name, slots=int(n)) for n, name in (word.split("*") for word in said[2].split()[1:])]
    desk = Desk(site(*hosts, closes_at=6 * 3600 + 37 * 60))
    assert desk.ask("bslots", "-l").out == "".join(said)


def test_bhosts() -> None:
    name = "ip-10-11-220-188.ec2.internal"
    assert Desk(site(Host(name=name, slots=4))).ask("bhosts").out == sample("bhosts_default.txt")
    desk = Desk(site(Host(name="ip-11-21-111-198..ec2.internal", slots=4)))
    fields = "host_name status jl_u max njobs run ssusp ususp rsv delimiter='|'"
    assert desk.ask("bhosts", "-o", fields).out == sample("bhosts_o_delim.txt")
    full = Desk(site(Host(name="ip-10-30-9-105", slots=4)))
    full.submit("-n", "4", "sleep", "9")
    said = full.ask("bhosts", "-json", "-o", "hname status max njobs run ssusp ususp rsv").out
    assert said == sample("bhosts_json.json")


def test_bhosts_of_one_host_in_full() -> None:
    total = ("1.0", "-0.0", "-0.0", "4%", "9.4", "148", "2", "3", "4231M", "698M", "233M", "8")
    reserved = ("0.0", "0.0", "0.0", "0%", "0.0", "0", "0", "0", "0M", "0M", "0M", "8")
    row = bhosts.HostRow(name="hostB", status="closed_Adm", numbers=(55, 2, 2, 0, 0, 0))
    assert bhosts.block(row, 23.1, total, reserved) == sample("bhosts_l_ibm.txt")


def test_bqueues() -> None:
    queues = (Queue(name="admin", priority=50), Queue(name="owners", priority=43))
    desk = Desk(Site(hosts=(Host(name="h"),), queues=queues, default_queue="owners"))
    assert desk.ask("bqueues").out == sample("bqueues_default.txt")
    fields = "queue_name priority status max jl_u jl_p jl_h njobs pend run susp delimiter=' '"
    assert desk.ask("bqueues", "-o", fields).out == sample("bqueues_o.txt")
    olcf = replace(desk.site, queues=(Queue(name="batch"), Queue(name="test")), default_queue="batch")
    assert Desk(olcf).ask("bqueues", "-o", "queue_name status", "-json").out == sample(
        "bqueues_json_olcf.json"
    )


def test_bjobs_in_json_of_a_held_job() -> None:
    said = sample("bjobs_json_psusp_olcf.json")
    fields = " ".join(json.loads(said)["RECORDS"][0]).lower()
    desk = Desk(
        site(Host(name="h"), queue=Queue(name="batch")),
        now=moment("2020 May 28 12:45:07"),
        manners=Manners(wrapped=True),
        user="shahzebsiddiqui",
        uid=1000,
    )
    job = "-nnodes 1 -W 10 -P GEN014ECPCI -J hold_job -o hold_job.out -e hold_job.err -H sleep 10"
    desk.submit(*job.split())
    assert desk.ask("bjobs", "-o", fields, "-json").out == said


def test_bjobs_in_json_of_a_running_job() -> None:
    """Whoever recorded it has written the JSON anew, with spaces after its colons."""
    said = json.loads(sample("bjobs_json_run_10.1.0.15.json"))
    record = said["RECORDS"][0]
    desk = Desk(
        site(Host(name="h"), first_id=5346451, cycle_s=1.0),
        now=moment("2026 Sep 30 20:32:14"),
        manners=Manners(long_times=True),
    )
    job = desk.submit("-n", "1", "-W", "20000", *record["COMMAND"].split(), cwd="/home/ambinteg")
    desk.cluster.launched(job, 0, 4711, desk.now + 1)
    desk.now += 1 + 57208
    fields = " ".join(record).lower()
    shown = json.loads(desk.ask("bjobs", "-o", fields, "-json").out)
    assert shown["RECORDS"][0].pop("NTHREADS") == "", "the emulator counts no threads"
    del record["NTHREADS"]
    assert json.dumps(shown, indent=2) == json.dumps(said, indent=2)


def test_bjobs_of_jobs_that_are_there_and_not() -> None:
    said = sample("bjobs_not_found.txt").splitlines(keepends=True)
    desk = Desk(
        site(Host(name="hostB"), first_id=111), now=moment("2026 Oct 22 09:22:00"), user="user1", host="hostA"
    )
    desk.submit("-J", "myjob", "sleep", "9")
    shown = desk.ask("bjobs", "111", "123")
    assert [shown.out, shown.err] == ["".join(said[1:3]), said[3]]
    assert desk.ask("bjobs", user="user2").err == said[5]
    assert [shown.code, desk.ask("bjobs", user="user2").code] == [255, 0]


def test_bjobs_wide() -> None:
    said = sample("bjobs_W_8.3.txt")
    row = {
        "JOBID": "542935",
        "USER": "efranz",
        "STAT": "RUN",
        "QUEUE": "short",
        "JOB_NAME": "foo",
        "FROM_HOST": "foobar02.osc.edu",
        "EXEC_HOST": "compute013",
        "SUBMIT_TIME": "03/31-14:46:42",
        "PROJ_NAME": "default",
        "CPU_USED": "000:00:00.00",
        "MEM": "2",
        "SWAP": "32",
        "PIDS": "25156",
        "START_TIME": "03/31-14:46:44",
        "FINISH_TIME": "",
    }
    assert bjobs.wide([row]) == said


def test_bjobs_with_a_delimiter_and_padding_nonetheless() -> None:
    """Values of two jobs as they were; how LSF came to `02` is not known."""
    said = sample("bjobs_o_delim.txt").splitlines()
    names = [cell.strip() for cell in said[0].split("|")]
    cells = [[cell.strip() for cell in line.split("|")] for line in said[1:]]
    rows = [dict(zip(names, [c if c != "-" else "" for c in line], strict=True)) for line in cells]
    form = columns.parse(f"{' '.join(names)} delimiter='|'", job_fields.WIDTHS, job_fields.ALIASES)
    padding = {"FROM_HOST": (29, 30), "EXEC_HOST": (20, 20)}
    assert columns.table(form, rows, padding=padding) == "\n".join([*said, ""])


def test_the_hosts_of_a_job_on_one_node_of_summit() -> None:
    desk = Desk(site(Host(name="batch1", launch=True), Host(name="a01n10")))
    desk.submit("-nnodes", "1", "-W", "10", "hostname")
    shown = desk.ask("bjobs", "-noheader", "-o", "exec_host delimiter='^'").out
    assert shown == sample("exec_host_summit_1node.txt")


def test_a_submission_on_summit_and_its_allocation() -> None:
    first, rest = sample("bsub_interactive_summit.txt").splitlines(keepends=True)[1:3]
    assert rest.startswith("<<"), "interactive jobs are not emulated"
    queue = Queue(name="batch")
    hosts = (Host(name="batch1", launch=True), Host(name="a35n03"))
    desk = Desk(site(*hosts, queue=queue, first_id=779469))
    assert desk.ask("bsub", "-W", "0:10", "-nnodes", "1", "-P", "STF007", "true").out == first
    said = sample("bsub_jslist_summit.txt").splitlines(keepends=True)
    desk = Desk(site(*hosts, queue=queue, first_id=26238), now=moment("2020 Feb 16 19:01:18"))
    assert desk.ask("bsub", "-nnodes", "1", "test.lsf").out == said[1]
    lines = desk.ask("bjobs", "-l", "26238").out.splitlines(keepends=True)
    assert [line for line in lines if "CSM_ALLOCATION_ID" in line] == [said[4]]


def test_a_rejection_by_a_site_wrapper() -> None:
    desk = Desk(site(Host(name="h")), manners=Manners(wrapped=True))
    said = desk.ask("bsub", "-n", "4", "true")
    assert (said.err, said.code) == (sample("esub_reject_summit.txt"), 255)


def test_jobstat() -> None:
    """Users of six letters and one of three, and a project of six, were replaced by `user` and `project`."""
    lines = sample("jobstat_summit.txt").splitlines(keepends=True)[1:]

    def row(id_: int, nodes: int, clock: str, when: str, **more: object) -> jobstat.StatRow:
        seconds = 0
        for part in clock.split(":"):
            seconds = 60 * seconds + int(part)
        at = moment(f"2026/{when}", "%Y/%m/%d %H:%M:%S") if when else 0.0
        user = "abc" if "reason" in more else "abcdef"
        return jobstat.StatRow(
            id=id_,
            user=user,
            project="STF007",
            nodes=nodes,
            seconds=seconds,
            when=at,
            **more,  # type: ignore[arg-type]
        )

    running = [
        row(331590, 2, "57:06", "04/09 10:06:23"),
        row(331707, 40, "39:47", "04/09 11:04:04", name="runA"),
    ]
    eligible = [
        row(331712, 80, "45:00", "04/09 11:06:23", name="runB"),
        row(331713, 90, "45:00", "04/09 11:07:19", name="runC"),
        row(331714, 100, "45:00", "04/09 11:07:49", name="runD"),
    ]
    blocked = [row(331715, 12, "2:00:00", "", reason="Job dependency condition not satisfied")]
    said = jobstat.text(running, eligible, blocked, 4544, 4604)
    for real in ("abcdef", "abc"):
        said = said.replace(real, "user")
    assert said.replace("STF007", "project") == "".join(lines)


def test_lsid_and_lshosts() -> None:
    name = "ip-11-21-111-198.ec2.internal"
    desk = Desk(site(Host(name=name), name="test-cluster"), host=name)
    assert desk.ask("lsid").out == sample("lsid.txt")
    from lsf.emulator.text import about

    row = (name, *["X86_64", "Intel_E5", "12.50", "4", "16030M", "-", "Yes", "1", "4", "1", "81886M"])
    assert about.lshosts([row]) == "".join(sample("lshosts_lsload.txt").splitlines(keepends=True)[:2])


def test_the_history_of_a_job_that_reached_its_limit() -> None:
    """Its hosts were renamed, so that the breaks of its lines are not those of LSF."""
    said = sample("bhist_l_runlimit.txt")
    host = "ip-11-21-111-198.ec2.internal"
    begin = moment("2026 Jan 21 22:12:59")
    desk = Desk(
        site(Host(name=host, slots=4), first_id=2211, report_s=1.0),
        now=begin,
        user="test",
        uid=1000,
        host=host,
        cwd="/home/test",
        env={"HOME": "/home/test"},
    )
    job = desk.submit("-J", "CPU_run.sh_1769033579", "-W", "2", "-R", "rusage[mem=2869]", "bash", "run.sh")
    desk.cluster.launched(job, 0, 15729, begin)
    desk.cluster.advance(begin + 120)
    assert [effect.number for effect in desk.cluster.state.effects if hasattr(effect, "number")] == [12]
    desk.cluster.exited(job, 0, 140, begin + 120)
    desk.now = begin + 130
    shown = desk.ask("bhist", "-l", "2211").out
    assert one_line(shown) == one_line(said)
    tail = said[said.index("\n RUNLIMIT") :]
    assert tail in shown


def test_a_job_that_waits_in_full() -> None:
    """It was retyped with lines that had lost spaces."""
    said = sample("bjobs_l_pend_plan_ibm.txt")
    hosts = [Host(name=f"host{n}", slots=23) for n in range(4609)]
    desk = Desk(
        site(*hosts, first_id=172024, job_priority=500),
        now=moment("2018 Mar 29 15:07:27"),
        user="username1",
        uid=1000,
        host="intel4",
        cwd="/home/username1",
        env={"HOME": "/home/username1"},
    )
    desk.cluster.set_host("host7", Closed.ADMIN, desk.now)
    demand = Demand(slots=23, only=frozenset({"host0"}))
    desk.cluster.submit(Request(demand=demand, user="u", queue="normal", duration_s=600.0), desk.now)
    desk.submit("-n", "23", "-m", "host0", "-We", "10", "x")
    assert one_line(desk.ask("bjobs", "-l", "172025").out) == one_line(said)


def test_messages() -> None:
    said = sample("messages.txt").splitlines()
    short = Queue(name="short")
    desk = Desk(site(Host(name="h", slots=4), queue=short, first_id=542935), user="u", uid=1000)
    assert desk.ask("bsub", "-q", "short", "true").out.strip() == said[0]
    desk = Desk(site(Host(name="h", slots=4), queue=short, first_id=8055), user="u", uid=1000)
    desk.submit("sleep", "9")
    desk.submit("sleep", "9")
    desk.cluster.exited(desk.cluster.state.jobs[8056], 0, 0, 0.0)
    assert desk.ask("bkill", "-s", "TERM", "8055").out.strip() == said[3]
    assert desk.ask("bkill", "8055").out.strip() == said[2]
    assert desk.ask("bkill", "8056").err.strip() == said[4]
    assert desk.ask("bkill", "44").err.strip() == said[5]
    assert desk.ask("bsub", "-q", "nix", "true").err.strip() == said[6]
    assert desk.ask("bsub", "-n", "5", "true").err.strip() == said[7]
    desk.lsf.manners = Manners(down=1, unreachable=1)
    assert desk.ask("bjobs").err.strip() == said[9]
    assert desk.ask("bsub", "true").out.splitlines()[0] == said[10]
    assert desk.ask("bjobs", user="other").err.strip() == said[11]
    assert desk.ask("bjobs", "123").err.strip() == said[12]


def test_the_file_of_the_planner() -> None:
    said = sample("lsb.allocation.plan.json")
    now = moment("2018 Mar 29 15:07:50")
    first = plan.PlanRow(id=172024, start=now + 600, end=now + 1200, slots=[("host0", 23)])
    second = plan.PlanRow(id=172025, start=now + 1282, end=now + 1882, slots=[("host0", 23)])
    shown = plan.text([first, second], "montreal", now, 18939)
    shift = 1522351070 - int(now + 600)  # the site's time zone is not ours
    for row in (first, second):
        for when in (row.start, row.end):
            shown = shown.replace(f'"{when:.0f}"', f'"{when + shift:.0f}"')
    assert shown == said


def test_the_accounting_of_a_job_that_was_killed() -> None:
    """It names the host asked for by another name than the one that the job ran on."""
    said = sample("lsb.acct.JOB_FINISH.10.1.txt")
    ran, asked = "lsf-pac.localdomain.com", "pac"
    desk = Desk(
        site(Host(name=ran, slots=1), first_id=7610, cycle_s=1.0),
        now=1527326745.0,
        user="lsfadmin",
        uid=1000,
        host="lsf-master.localdomain.com",
    )
    job = desk.submit("-m", ran, "sleep", "1000")
    desk.cluster.advance(1527326746.0)
    desk.cluster.exited(job, 0, 255, 1527327585.0)
    shown = acct.record(job, desk.cluster.state)
    assert shown.replace(f'1 "{ran}" 1', f'1 "{asked}" 1', 1).rstrip() == said.rstrip()


def test_every_sample_is_read_by_a_parser_and_printed_by_the_emulator() -> None:
    names = {path.name for path in FOLDER.iterdir()} - {"README.md"}
    readers = [*(TESTS / "schedulers").glob("test_lsf_*.py"), TESTS / "traces" / "test_lsb_acct.py"]
    read = "".join(path.read_text() for path in readers)
    printed = Path(__file__).read_text()
    assert [name for name in sorted(names - NOT_READ) if name not in read] == []
    assert [name for name in sorted(names - NOT_PRINTED) if name not in printed] == []
