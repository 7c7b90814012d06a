"""lsb.acct, LSF's file of finished jobs."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.traces.formats import lsb_acct
from bftrainer.traces.formats.lines import BrokenLineError
from bftrainer.traces.formats.lsb_acct import FinishedJob
from bftrainer.traces.logs import load
from tests.support.lsf_samples import sample


def record(job: int, start: int, end: int, hosts: list[str], *, name: str = "n", asked: int = 0) -> str:
    """As LSF 10.1 writes it."""
    quoted = name.replace('"', '""')
    fields = [
        *('"JOB_FINISH"', '"10.1"', end, job, 1000, 33554438, 84, 90, 0, 0, start, '"u"', '"batch"'),
        *('""', '""', '""', '"login1"', '"/home/u"', '""', '""', '""', '"90.7"'),
        *(asked, *['"m"'] * asked, len(hosts), *(f'"{host}"' for host in hosts)),
        *(64, "60.0", f'"{quoted}"', '"sleep 9 "', *["-1"] * 19, '""', '"default"', 65280, 84, '""', '""', 0),
    ]
    return " ".join(map(str, fields))


def test_a_record() -> None:
    line = record(7, 100, 200, ["batch1", "a", "a", "b"], name='say "hi"', asked=2)
    assert lsb_acct.recognises(line)
    assert lsb_acct.finished(line) == FinishedJob(
        *("7", "u", "batch", 90.0, 100.0, 200.0, 84, {"batch1": 1, "a": 2, "b": 1}, "DONE", 'say "hi"', 65280)
    )


def test_hosts_of_the_short_form() -> None:
    found = lsb_acct.finished(record(7, 100, 200, ["42*a", "b"]))
    assert found is not None
    assert found.hosts == {"a": 42, "b": 1}


def test_a_log_of_idle_hosts(tmp_path: Path) -> None:
    path = tmp_path / "lsb.acct"
    lines = [
        record(1, 100, 200, ["batch1", "a", "b"]),
        record(2, 250, 400, ["batch1", "a"]),
        record(3, 0, 260, []),
        '"EVENT_ADRSV_FINISH" "10.1" 300 1 2 3',
    ]
    path.write_text("\n".join(lines) + "\n")
    log = load(path)
    assert (log.format, log.nodes, log.broken) == ("lsb.acct", {"a", "b"}, 0)
    assert [(i.start, i.end, i.node) for i in log.intervals] == [
        (200.0, 250.0, "a"),
        (200.0, float("inf"), "b"),
    ]
    assert any("never started" in note for note in log.notes)


@pytest.mark.parametrize(
    "line", ["", "1 2 3", '"JOB_FINISH" "10.1" 5', record(7, 100, 200, ["a"]).replace(" 90 ", " x ", 1)]
)
def test_what_is_no_record(line: str) -> None:
    with pytest.raises(BrokenLineError):
        lsb_acct.finished(line)


def test_real_records() -> None:
    first = lsb_acct.finished(sample("lsb.acct.JOB_FINISH.10.1.txt").strip())
    assert first is not None
    assert (first.job, first.user, first.queue, first.state) == ("7610", "lsfadmin", "normal", "EXIT")
    assert (first.start, first.end, first.exit_status) == (1527326746.0, 1527327585.0, 65280)
    assert first.hosts == {"lsf-pac.localdomain.com": 1}
    second = lsb_acct.finished(sample("lsb.acct.JOB_FINISH.10.108.txt").strip())
    assert second is not None
    assert (second.job, second.queue, second.state, second.exit_status) == ("386", "sender", "DONE", 0)
    assert second.hosts == {"ip-10-30-66-253.eu-west-1.compute.internal": 1}


@given(st.text(st.characters(exclude_characters="\r\n"), max_size=100))
def test_any_name_is_read_back(name: str) -> None:
    found = lsb_acct.finished(record(7, 100, 200, ["a"], name=name))
    assert found is not None
    assert found.name == name


@given(st.text(max_size=200))
def test_any_line_is_read_or_refused(text: str) -> None:
    for line in (text, record(7, 100, 200, ["a"])[: len(text)] + text, f'"JOB_FINISH" {text}'):
        with contextlib.suppress(BrokenLineError):
            lsb_acct.finished(line)
