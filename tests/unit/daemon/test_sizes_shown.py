"""What users are shown of a trainer that allows some sizes only."""

from __future__ import annotations

from bftrainer.daemon.answers.views.trainers import scalability_view
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import Trainer, TrainerSpec


def test_it_may_ask_for_allowed_sizes_only() -> None:
    """Of a new program at most twice the least size is asked for: of 3 and 8 nodes that is 3."""
    spec = TrainerSpec(name="t", command=("x",), n_min=3, n_max=8, sizes=AllowedSizes(listed=(3, 8)))
    view = scalability_view(Trainer(id=1, spec=spec, submitted_at=0.0), [], {})
    assert view["may_ask_for"] == 3
    assert [row["nodes"] for row in view["sizes"]] == [3, 8]
