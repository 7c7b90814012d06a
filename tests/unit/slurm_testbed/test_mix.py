"""Main jobs of many kinds: shares, the load that they make, and what they ask for."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.testbeds.mix import RESERVED_AFTER_S, deck, mixed
from benchmarks.testbeds.workload import MainJob, requests_for
from bftrainer.traces.intervals import LogError
from slurm.testbed.mix import KINDS, MIXES
from slurm.testbed.plan import CORES, MEMORY_MB


def jobs(
    name: str, *, count: int = 90, seed: int = 1, nodes: int = 8, load: float = 0.3, shared: bool = True
) -> tuple[MainJob, ...]:
    requests, machine = requests_for(count, seed)
    return mixed(
        requests,
        machine,
        MIXES[name],
        KINDS,
        nodes=nodes,
        seconds=2 * count,
        load=load,
        seed=seed,
        shared=shared,
    )


def option(job: MainJob, name: str) -> int | None:
    """The number behind an option of the first component."""
    found = [word for word in job.components[0] if word.startswith(f"--{name}=")]
    return int(found[0].rpartition("=")[2].rpartition(":")[2]) if found else None


@given(
    st.dictionaries(st.sampled_from(sorted(KINDS)), st.floats(0.01, 1), min_size=1, max_size=8),
    st.integers(1, 200),
)
def test_kinds_come_in_their_shares(shares: dict[str, float], count: int) -> None:
    dealt = Counter(deck(shares, count))
    assert dealt.total() == count
    assert dealt.keys() <= shares.keys()
    if count < len(shares):
        return
    assert dealt.keys() == shares.keys()  # none is left out
    for kind, share in shares.items():
        wanted = count * share / sum(shares.values())
        assert dealt[kind] <= max(1, wanted + 1)
        assert dealt[kind] >= wanted - len(shares)  # kinds of less than one job take it from others


@pytest.mark.parametrize("name", MIXES)
@settings(max_examples=10)
@given(st.integers(0, 999), st.integers(2, 64), st.booleans())
def test_a_seed_gives_the_same_jobs_which_make_the_load(
    name: str, seed: int, nodes: int, shared: bool
) -> None:
    try:
        found = jobs(name, seed=seed, nodes=nodes, shared=shared)
    except LogError:
        return  # such jobs cannot be that load
    assert found == jobs(name, seed=seed, nodes=nodes, shared=shared)
    assert {job.kind for job in found} == set(MIXES[name].shares)
    work = sum(job.size * job.tasks * job.run_s for job in found)
    assert work == pytest.approx(0.3 * nodes * 180, rel=0.01)
    by_number = {job.number: job for job in found}
    for job in found:
        assert 0 < job.size <= nodes
        assert shared or job.size == int(job.size)
        assert job.kind == "heterogeneous" or len(job.components) == 1
        assert (job.reserved is not None) == (job.kind == "reserved")
        if job.reserved is not None:
            assert RESERVED_AFTER_S[0] <= job.reserved.begins_s <= RESERVED_AFTER_S[1]
            assert 1 <= int(job.reserved.node[1:]) <= nodes
        if job.after:
            assert job.kind == "dependent"
            assert job.after < job.number
            assert by_number[job.after].reserved is None


def test_what_the_kinds_ask_for() -> None:
    found = {job.kind: job for job in jobs("everything")}
    for kind in ("cores", "dependent", "reserved"):
        assert found[kind].size == (option(found[kind], "cpus-per-task") or 0) / CORES
    assert found["array"].components[0][0] == f"--array=0-{found['array'].tasks - 1}"
    nodes, each = (option(found["several"], name) or 0 for name in ("nodes", "ntasks-per-node"))
    assert found["several"].size == nodes * each / CORES
    assert "--exclusive" in found["exclusive"].components[0]
    assert len(found["heterogeneous"].components) == 2
    assert found["memory"].size == max(1 / CORES, (option(found["memory"], "mem") or 0) / MEMORY_MB)
    assert option(found["gpus"], "gres") in (1, 2)
    assert option(found["licence"], "licenses") in (1, 2)
    assert found["urgent"].components[0][0] == "--partition=urgent"
    assert {job.components[0][0] for job in jobs("accounts") if job.kind == "qos"} == {"--qos=high"}


def test_kinds_of_a_log_keep_its_times_and_sizes() -> None:
    whole = jobs("nodes", count=20)
    several = mixed(
        *requests_for(20, 1), MIXES["nodes"], KINDS, nodes=8, seconds=40, load=0.3, seed=2, shared=True
    )
    assert [job.submit_s for job in several] == [job.submit_s for job in whole]
    assert [job.size for job in several] == [job.size for job in whole]
    assert {f"--nodes={job.size}" for job in whole} == {job.components[0][0] for job in whole}
