"""What users of the machine can write into Slurm, as it reaches us: nothing of it is more than a bad line."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.schedulers.shared.text import TextError
from bftrainer.schedulers.slurm import text as slurm_text
from bftrainer.schedulers.slurm import values
from bftrainer.schedulers.slurm.dialect import SEPARATOR
from bftrainer.schedulers.slurm.own_jobs import SlurmOwnJobs
from bftrainer.schedulers.slurm.rows import SlurmJobRow
from bftrainer.schedulers.slurm.text import FIELDS, MOST_OF_USER
from bftrainer.schedulers.slurm.view import interpret
from tests.support.slurm_samples import DATA, MAIN_JOB, MARK

SAMPLE = (DATA / "22.05" / "squeue.txt").read_bytes()
GOOD = SAMPLE.split(b"\n")[0]
NOW = 1795289515.0
OURS = SlurmOwnJobs("0a1b2c3d", "root", frozenset({"root"}), "backfill")

WORDS = st.one_of(
    st.binary(max_size=6),
    st.sampled_from(
        [
            b"9" * 5000,
            "\u0665".encode(),
            b"n[1-99999]" * 9,
            b"[" * 3000,
            b"]",
            b"n[1,",
            b"1-1:1:1:1",
            b"PENDING",
            b"4_[1-999999999:0%3]",
            b"gpu:" + b"9" * 5000,
            b"(" * 3000,
            b"\xed\xa0\x80",
            b"n1\0",
            b"..K",
            b"(null)",
        ]
    ),
)


def line(fields: list[bytes]) -> bytes:
    apart = SEPARATOR.encode()
    return apart.join([MARK.encode(), *(field.replace(apart, b"").replace(b"\n", b"") for field in fields)])


@given(st.text())
def test_nothing_but_a_text_error_comes_out(text: str) -> None:
    for parse in (slurm_text.machine, values.expand):
        with suppress(TextError):
            parse(text)


@given(st.binary())
def test_a_queue_of_any_bytes_is_read(printed: bytes) -> None:
    with suppress(TextError):
        slurm_text.jobs(printed, MARK)


@given(st.lists(WORDS, min_size=len(FIELDS), max_size=len(FIELDS)))
def test_no_field_breaks_the_queue_or_what_is_made_of_it(fields: list[bytes]) -> None:
    rows, odd = slurm_text.jobs(GOOD + b"\n" + line(fields) + b"\n", MARK)
    assert len(rows) + len(odd) == 2
    machine = slurm_text.machine((DATA / "22.05" / "scontrol.txt").read_text())
    quiet, _ = slurm_text.jobs(GOOD, MARK)
    before = interpret(machine, quiet, OURS, now=NOW)
    after = interpret(machine, rows, OURS, now=NOW)
    assert {pilot.tag for pilot in before.snapshot.pilots} <= {pilot.tag for pilot in after.snapshot.pilots}


@given(st.binary(max_size=200))
def test_a_name_changes_nothing_but_itself(name: bytes) -> None:
    """Whatever it contains: it is the last field, and a line of another job begins with the mark."""
    apart = SEPARATOR.encode()
    forged = GOOD.replace(MARK.encode(), b"fedcba9876543210")
    evil = apart.join([*GOOD.split(apart)[:-1], name + b"\n" + forged])
    (row,), odd = slurm_text.jobs(evil, MARK)
    (honest,), _ = slurm_text.jobs(GOOD, MARK)
    assert not odd
    assert replace(row, name="") == replace(honest, name="")
    assert row.name == name.split(b"\n")[0].decode(errors="replace").rstrip(" ")


def test_a_reason_cannot_steer_a_terminal() -> None:
    fields = GOOD.split(SEPARATOR.encode())
    fields[-2] = b"held\x1b[2J\xff"
    (row,), _ = slurm_text.jobs(SEPARATOR.encode().join(fields), MARK)
    assert row.reason == "held\\x1b[2J\ufffd"


@pytest.mark.parametrize(
    "text",
    [
        "n[1-99999][1-99999]",
        "[1-9]" * 200,
        "[" * 200_000,
        "n[" + "," * 200_000,
        "n[1-9" * 50_000,
        ",".join(["n[1-99999]"] * 50),
        "n[" + "9" * 5000 + "]",
    ],
)
def test_a_list_of_nodes_that_no_machine_has_is_refused_at_once(text: str) -> None:
    with pytest.raises(TextError):
        values.expand(text)
    assert values.names(text) is None


def test_values_that_are_none() -> None:
    assert values.megabytes("9" * 5000 + "P") > 0
    assert values.megabytes("....") == 0
    assert values.moment("\u0665" * 3) is values.moment("9" * 400) is None
    assert values.count("9" * 5000) > 0
    assert values.duration_s("9" * 5000 + ":00") is None
    assert values.tasks("7_[1-" + "9" * 5000 + "]") == 1


def pending(number: int, user: bytes, **others: bytes) -> bytes:
    fields = dict.fromkeys(FIELDS, b"")
    fields |= {
        "%i": str(number).encode(),
        "%P": b"batch",
        "%u": user,
        "%T": b"PENDING",
        "%D": b"1",
        "%Q": b"9",
    }
    fields |= {"%Y": b"(null)", "%r": b"Priority", "%64j": b"main"}
    return line([*(fields | {f"%{key}": value for key, value in others.items()}).values()])


def test_of_one_users_many_jobs_those_count_that_can_matter() -> None:
    flood = [pending(number, b"eve") for number in range(MOST_OF_USER + 500)]
    mine = pending(9001, b"me")
    planned = pending(9002, b"eve", Y=b"n7")
    running = pending(9003, b"eve", T=b"RUNNING")
    pilot = pending(9004, b"eve", **{"64j": b"bftrainer-0a1b2c3d-" + b"1" * 32})
    rows, odd = slurm_text.jobs(b"\n".join([*flood, mine, planned, running, pilot]), MARK, "bftrainer-")
    assert not odd
    assert [row.id for row in rows[MOST_OF_USER:]] == ["9001", "9002", "9003", "9004"]


def test_jobs_that_run_take_no_place_of_those_that_wait() -> None:
    running = [pending(number, b"eve", T=b"RUNNING") for number in range(MOST_OF_USER)]
    rows, _ = slurm_text.jobs(b"\n".join([*running, pending(9001, b"eve")]), MARK)
    assert rows[-1].id == "9001"


def test_lists_of_users_are_not_expanded_before_they_matter() -> None:
    """Ten thousand jobs that name all nodes would be 50 million names."""
    rows, _ = slurm_text.jobs(pending(1, b"eve", n=b"n[1-5000]", x=b"n[5001-9999]"), MARK)
    assert (rows[0].required, rows[0].excluded) == ("n[1-5000]", "n[5001-9999]")


def test_a_list_that_cannot_be_read_hinders_its_job_alone() -> None:
    machine = slurm_text.machine((DATA / "22.05" / "scontrol.txt").read_text())

    def main(number: int, **others: object) -> SlurmJobRow:
        return replace(MAIN_JOB, id=str(number), **others)  # type: ignore[arg-type]

    view = interpret(machine, [main(1, required="n[["), main(2, excluded="n[x]"), main(3)], OURS, now=NOW)
    assert view.found.jobs == {"3"}
