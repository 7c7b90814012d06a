"""Periodic dumps of LSF's bhosts, as a shell loop writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.traces.intervals import Interval, LogError
from bftrainer.traces.logs import Log, LogOptions, load
from tests.support.lsf_samples import FOLDER, sample

INF = float("inf")
HEADER = "HOST_NAME          STATUS          JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV\n"


def host(name: str, status: str = "ok", run: int = 0, suspended: int = 0, reserved: int = 0) -> str:
    used = run + suspended + reserved
    return f"{name:<18} {status:<15} -  42 {used:>6} {run:>6} {suspended:>6} 0 {reserved:>6}\n"


def dump(time: int, *rows: str, more: str = "") -> str:
    return f"{time}\n{HEADER}{''.join(rows)}{more}----\n"


def read(folder: Path, text: str, **options: object) -> Log:
    (folder / "log").write_text(text)
    return load(folder / "log", LogOptions(**options))  # type: ignore[arg-type]


def test_hosts_without_a_job_are_idle_also_where_slots_are_reserved(tmp_path: Path) -> None:
    rows = [
        *(host("batch1"), host("a"), host("b", "closed_Full", reserved=42), host("c", "closed_Full", run=42)),
        *(host("d", "closed_Adm"), host("e", suspended=42), host("f", "closed_Full"), host("g", "unavail")),
    ]
    log = read(tmp_path, dump(1000000000, *rows) + dump(1000000010, host("a", run=1), host("c")))
    assert (log.format, log.broken, log.nodes) == ("bhosts", 0, frozenset("abcdefg"))
    assert {(i.node, i.start - 1e9, i.end - 1e9) for i in log.intervals} == {
        *(("a", 0.0, 10.0), ("b", 0.0, 10.0), ("c", 10.0, INF))
    }
    assert log.notes == ("2 samples",)


def test_a_host_without_slots_is_never_idle(tmp_path: Path) -> None:
    management = host("m1").replace(" 42 ", "  0 ")
    log = read(tmp_path, dump(1000000000, management, host("a")) + dump(1000000010, management, host("a")))
    assert {interval.node for interval in log.intervals} == {"a"} and log.nodes == {"m1", "a"}


def test_what_is_no_table_of_hosts_makes_its_sample_count_for_nothing(tmp_path: Path) -> None:
    down = "1000000010\nLSF is down. Please wait ...\n"
    text = dump(1000000000, host("a")) + down + dump(1000000020, host("a", run=42))
    log = read(tmp_path, text, max_broken=0.5)
    assert [(i.node, i.end - 1e9) for i in log.intervals] == [("a", 20.0)]
    silent = dump(1000000000, host("a")) + f"{down}----\n" + dump(1000000020, host("a"))
    assert read(tmp_path, silent, max_broken=0.5).intervals == [Interval(1e9, INF, "a")]
    assert log.broken == 1, "the sample before the third has no end"
    with pytest.raises(LogError, match="take bhosts -w"):
        read(tmp_path, dump(1000000000, host("a", "closed", run=42)))


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded outputs in {FOLDER}")
def test_what_real_commands_print_beside_bhosts_is_passed_over(tmp_path: Path) -> None:
    """The paper's own recordings had bslots and jobstat."""
    others = [sample("bslots_summit.txt").partition("\n")[2].partition("\n\n")[0] + "\n"]
    others += [sample("jobstat_summit.txt").partition("\n")[2], sample("bslots_unlimited.txt")]
    real = sample("bhosts_default.txt")
    text = f"1000000000\n{''.join(others)}{real}----\n1000000010\n{real}{''.join(others)}----\n"
    log = read(tmp_path, text)
    assert (log.format, log.broken) == ("bhosts", 0)
    assert log.intervals == [Interval(1e9, INF, "ip-10-11-220-188.ec2.internal")]
