"""What a script has to bear while it evaluates for longer than its nodes wait for one that is silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.churn import NODES
from tests.support.kinds import BATCH, Kind, begun, finished
from tests.support.site import Site
from tests.support.waiting import LONG_S


def disturbed_while_evaluating(
    site: Site, kind: Kind, folder: Path, seed: int, *words: str
) -> dict[str, Any]:
    """While rank 0 evaluates alone, another worker is killed, and a node is lost and comes again. While all
    evaluate, any worker is killed. Returns the trainer in the end."""
    churn = begun(site, kind, folder, seed, *words)
    per_epoch = -(-kind.length // BATCH)
    alone, together = (churn.steps // per_epoch * part // 3 * per_epoch for part in (1, 2))
    churn.upto(alone + per_epoch)
    site.until(lambda: _begun(folder, "alone"), LONG_S, "rank 0 evaluates")
    first, *others = churn.members()
    worker = site.worker_on(first)
    churn.rng.shuffle(others)
    churn.kill(others[0])
    site.change(take=others[1:])
    site.until(lambda: others[1] not in churn.members(), LONG_S, "a node is lost")
    site.change(give=others[1:])
    churn.trains(*NODES)
    if not words:
        assert site.worker_on(first) == worker, "nobody took it for hung"
    churn.upto(together + per_epoch)
    site.until(lambda: _begun(folder, "together"), LONG_S, "all evaluate")
    churn.kill(churn.rng.choice(churn.members()))
    churn.trains(*NODES)
    return finished(churn)


def _begun(folder: Path, what: str) -> list[Path]:
    """Workers that have begun an evaluation."""
    return [path for path in folder.glob(f"{what}.*") if path.suffix != ".pt"]
