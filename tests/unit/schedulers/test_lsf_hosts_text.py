"""What bhosts, bslots and lshosts print."""

from __future__ import annotations

import contextlib
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.schedulers.lsf.rows import BackfillWindow, HostRow
from bftrainer.schedulers.lsf.text import hosts_text, tables
from bftrainer.schedulers.shared.text import TextError
from tests.support.lsf_samples import sample

JSON = """{
  "COMMAND":"bhosts",
  "HOSTS":2,
  "RECORDS":[
    {
      "HOST_NAME":"c1",
      "STATUS":"closed_Full",
      "MAX":"42",
      "NJOBS":"42",
      "RUN":"0",
      "SSUSP":"0",
      "USUSP":"0",
      "RSV":"42"
    },
    {
      "HOST_NAME":"c2",
      "STATUS":"ok",
      "MAX":"-",
      "NJOBS":"3",
      "RUN":"1",
      "SSUSP":"2",
      "USUSP":"0",
      "RSV":"0"
    }
  ]
}
"""
BOTH = {"c1": HostRow("c1", "closed_Full", 42, 0, 42), "c2": HostRow("c2", "ok", 0, 3, limited=False)}


def test_hosts_in_each_form() -> None:
    assert hosts_text.hosts(JSON) == BOTH
    assert (
        hosts_text.hosts(
            "HOST_NAME^STATUS^MAX^NJOBS^RUN^SSUSP^USUSP^RSV\nc1^closed_Full^42^42^0^0^0^42\n"
            "c2 ^ok^-^3^1^2^0^0\n"
        )
        == BOTH
    )
    head = "HOST_NAME          STATUS          JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV\n"
    rows = "c1  closed_Full  -  42  42  0  0  0  42\nc2  ok  -  -  3  1  2  0  0\n"
    assert hosts_text.hosts(head + rows) == BOTH


def test_hosts_of_real_commands() -> None:
    name = "ip-10-11-220-188.ec2.internal"
    assert hosts_text.hosts(sample("bhosts_default.txt")) == {name: HostRow(name, "ok", 4, 0)}
    full = HostRow("ip-10-30-9-105", "closed_Full", 4, 4)
    assert hosts_text.hosts(sample("bhosts_json.json")) == {full.name: full}
    (row,) = tables.records(sample("bhosts_o_delim.txt"), delimiter="|")
    assert (row["HOST_NAME"], row["STATUS"], row["JL_U"], row["MAX"]) == (
        "ip-11-21-111-198..ec2.internal",
        "ok",
        "",
        "4",
    )


def test_a_machine_is_never_taken_to_be_empty() -> None:
    for text in (
        "",
        "LSF is down. Please wait ...\n",
        '{"COMMAND":"bhosts","HOSTS":0,"RECORDS":[]}',
        "{",
        "{}",
    ):
        with pytest.raises(TextError):
            hosts_text.hosts(text)


def test_one_host_without_numbers_does_not_hide_the_others() -> None:
    broken = JSON.replace('"RUN":"1"', '"RUN":""')
    assert hosts_text.hosts(broken) == {"c1": BOTH["c1"]}


def test_windows() -> None:
    assert hosts_text.windows("SLOTS          RUNTIME\n42             1 hours 0 minutes 5 seconds\n") == (
        BackfillWindow(42, 3605.0),
    )
    assert hosts_text.windows("No backfill window exists at this time\n") == ()
    assert hosts_text.windows("No backfill window meets the requirements\n") == ()
    for text in ("", "SLOTS          RUNTIME\n", "Cannot connect\n", "SLOTS RUNTIME\nx y\n"):
        with pytest.raises(TextError):
            hosts_text.windows(text)


def test_windows_of_real_commands() -> None:
    summit = sample("bslots_summit.txt").split("\n\n")
    assert hosts_text.windows(summit[0]) == (BackfillWindow(42, 92571.0), BackfillWindow(27384, 4310.0))
    assert hosts_text.windows(summit[1]) == (BackfillWindow(127764, 1375.0),)
    assert hosts_text.windows(sample("bslots_unlimited.txt")) == (BackfillWindow(2, inf),)
    (window,) = hosts_text.windows(sample("bslots_l_wrapped_cosma.txt"))
    assert (window.slots, window.length_s) == (70, 23820.0)
    assert sum(window.hosts.values()) == 70
    assert window.hosts["m4071"] == 11


def test_the_long_form_may_have_several_windows_and_long_lists() -> None:
    text = "SLOTS: 3\nRUNTIME: UNLIMITED\nHOSTS: 1*a\n  2*b\n\nSLOTS: 4\nRUNTIME: 9 seconds\nHOSTS: 4*c\n"
    assert hosts_text.windows(text) == (
        BackfillWindow(3, inf, {"a": 1, "b": 2}),
        BackfillWindow(4, 9.0, {"c": 4}),
    )
    with pytest.raises(TextError):
        hosts_text.windows("SLOTS: 3\nHOSTS: 3*a\n")


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (hosts_text.hosts, hosts_text.windows):
        for given_text in (text, JSON[:200] + text, "SLOTS RUNTIME\n" + text, "SLOTS: " + text):
            with contextlib.suppress(TextError):
                read(given_text)
