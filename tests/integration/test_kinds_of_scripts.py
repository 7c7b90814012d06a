"""Training scripts of the kinds that users bring: nodes come and go, and each ends as if they did not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.churn import NODES
from tests.support.disturb import cancel
from tests.support.kinds import BATCH, Kind, begun, churned, compare, finished, undisturbed
from tests.support.long_evaluation import disturbed_while_evaluating
from tests.support.site import Site, running_at_will
from tests.support.waiting import LONG_S

pytestmark = pytest.mark.timeout(900)

KINDS = [
    Kind("plain", "completed before"),
    Kind("epoch_scheduler", "failed"),
    Kind("gan", "failed"),
    Kind("ema", "result.pt/ema"),
    Kind(
        "early_stopping",
        "result.pt/best|best.pt|completed before|it has taken",
        files=("best.pt", "result.pt"),
    ),
    Kind("accumulate", "completed before"),
    Kind("compiled", "completed before"),
    Kind("stream", "epoch [0-9]+ has used a sample twice|[0-9]+ samples were left out"),
    Kind("with_lightning", "failed", launcher="torchrun", length=96),
    Kind("with_huggingface", "failed|after step", launcher="torchrun", length=96, tolerance=1e-5),
    Kind("fsdp2", "after step", launcher="torchrun", length=96),
]
EVERY_COMMIT = {("ema", 1), ("stream", 1)}
"""Parts of a script's own, and a stream."""
SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One for all: its nodes keep their warm processes from one script to the next."""
    with running_at_will(*NODES, t_fwd_s=60) as site:
        site.change(give=NODES)
        yield site
        site.stop()
        assert not site.processes()


@pytest.fixture(autouse=True)
def nothing_else_runs(site: Site) -> Iterator[None]:
    """What a test that failed has left running, and the nodes that it took, are no other test's."""
    yield
    cancel(site, *(trainer["name"] for trainer in site.get("trainers")))
    site.change(give=NODES)


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(
            kind,
            seed,
            marks=() if (kind.script, seed) in EVERY_COMMIT else pytest.mark.nightly,
            id=f"{kind.script}-{seed}",
        )
        for kind in KINDS
        for seed in SEEDS
    ],
)
def test_a_script_ends_where_its_undisturbed_run_does(
    site: Site, kind: Kind, seed: int, tmp_path: Path
) -> None:
    ended = churned(site, kind, tmp_path, seed)
    apart = compare(kind, tmp_path, ended)
    site.until(lambda: not site.workers(), LONG_S, "its processes have ended")
    print(f"{kind.script}, seed {seed}: numbers lie {apart:.1e} apart at most")


def long_evaluation(seconds: int) -> Kind:
    """Two evaluations of so many seconds, with others that wait 0.8 times as long for one that is silent."""
    files = ("alone.pt", "result.pt")
    return Kind("long_evaluation", "the files are", files=files, words=(("0",), (str(seconds),)))


@pytest.mark.nightly
@pytest.mark.parametrize(("seconds", "seed"), [(150, 1), (10, 2), (10, 3)])
def test_nobody_takes_a_long_evaluation_for_a_node_that_hangs(
    site: Site, seconds: int, seed: int, tmp_path: Path
) -> None:
    kind = long_evaluation(seconds)
    ended = disturbed_while_evaluating(site, kind, tmp_path, seed)
    apart = compare(kind, tmp_path, ended, on={3})
    print(f"evaluations of {seconds} s, seed {seed}: numbers lie {apart:.1e} apart at most")


@pytest.mark.nightly
def test_a_long_evaluation_that_nobody_is_told_of_is_lost(site: Site, tmp_path: Path) -> None:
    kind = long_evaluation(30)
    with pytest.raises(AssertionError, match=f"^({kind.without})") as told:
        ended = disturbed_while_evaluating(site, kind, tmp_path, 1, "unchanged")
        compare(kind, tmp_path, ended, on={3})
    print(f"long_evaluation unchanged: {told.value}")


@pytest.mark.nightly
@pytest.mark.parametrize("words", [(), ("at_once",)])
def test_the_best_weights_survive_the_node_that_saves_them_if_they_are_a_part(
    site: Site, words: tuple[str, ...], tmp_path: Path
) -> None:
    (kind,) = (kind for kind in KINDS if kind.script == "early_stopping")
    best = undisturbed(kind)["result.pt/best/epoch"]
    (tmp_path / "hold").write_text(str(best))
    churn = begun(site, kind, tmp_path, 1, *words)
    churn.upto((best + 1) * -(-kind.length // BATCH))
    if words:
        site.until(lambda: list(tmp_path.glob("best.pt.*")), LONG_S, "rank 0 saves")
    else:
        churn.reach(best / undisturbed(kind)["result.pt/epochs"])
    churn.kill(churn.members()[0])
    (tmp_path / "hold").unlink()
    churn.trains(*NODES)
    ended = finished(churn)
    partial = list(tmp_path.glob("best.pt.*"))
    assert len(partial) == len(words), "killed while it saved"
    for path in partial:
        path.unlink()
    with pytest.raises(AssertionError, match=r"^best\.pt/") if words else contextlib.nullcontext():
        compare(kind, tmp_path, ended, on={3})


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.script)
def test_without_a_line_that_its_kind_needs_a_script_ends_elsewhere(
    site: Site, kind: Kind, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=f"^({kind.without})") as told:
        ended = churned(site, kind, tmp_path, 1, "unchanged")
        compare(kind, tmp_path, ended)
    print(f"{kind.script} unchanged: {str(told.value).splitlines()[0]}")
