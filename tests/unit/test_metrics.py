"""What Prometheus reads."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bftrainer.api.metrics import render


def trainer(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "members": ["n1", "n2"],
        "samples": 10,
        "step": 2,
        "epoch": 0,
        "rate": None,
        "metrics": {"loss": 0.5, 'a "quoted" name': 1.0},
        "ended_at": None,
        **more,
    }


def test_every_unfinished_trainer_is_exported_with_what_it_reported() -> None:
    text = render(
        {"pool": 5, "unused": 2, "state": "degraded"}, [trainer("one"), trainer("two", ended_at=3.0)]
    )
    found = {
        (s.name, *sorted(s.labels.values())): s.value
        for family in text_string_to_metric_families(text.decode())
        for s in family.samples
    }
    assert found["bftrainer_pool_nodes", "used"] == 3
    assert found["bftrainer_degraded",] == 1
    assert found["bftrainer_trainer_nodes", "one"] == 2
    assert found["bftrainer_trainer_metric", "loss", "one"] == 0.5
    assert found["bftrainer_trainer_metric", 'a "quoted" name', "one"] == 1.0
    assert not any("two" in key for key in found)
