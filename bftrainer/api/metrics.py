"""What is exported for Prometheus: the pool, and of every unfinished trainer what it last reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OF_TRAINERS = {
    "samples": "Samples trained so far.",
    "step": "Steps taken so far.",
    "epoch": "Passes over the data so far.",
    "rate": "Samples per second at the moment.",
}


def render(status: dict[str, Any], trainers: Iterable[dict[str, Any]]) -> bytes:
    """The text format, from what `Service.status` and `Service.trainers` say."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(status, [t for t in trainers if not t["ended_at"]]))
    return generate_latest(registry)


class _Snapshot(Collector):
    """One moment as metrics; whoever has ended is not in it any more."""

    def __init__(self, status: dict[str, Any], trainers: list[dict[str, Any]]) -> None:
        self._status, self._trainers = status, trainers

    def collect(self) -> Iterator[Metric]:
        pool = GaugeMetricFamily("bftrainer_pool_nodes", "Nodes of the pool.", labels=["state"])
        unused = self._status["unused"]
        pool.add_metric(["used"], self._status["pool"] - unused)
        pool.add_metric(["unused"], unused)
        yield pool
        yield GaugeMetricFamily(
            "bftrainer_degraded",
            "1 where something is not as it should be.",
            self._status["state"] == "degraded",
        )
        nodes = GaugeMetricFamily("bftrainer_trainer_nodes", "Nodes that train.", labels=["trainer"])
        for t in self._trainers:
            nodes.add_metric([t["name"]], len(t["members"]))
        yield nodes
        for key, meaning in _OF_TRAINERS.items():
            family = GaugeMetricFamily(f"bftrainer_trainer_{key}", meaning, labels=["trainer"])
            for t in self._trainers:
                family.add_metric([t["name"]], t[key] or 0.0)
            yield family
        reported = GaugeMetricFamily(
            "bftrainer_trainer_metric", "What the script last reported.", labels=["trainer", "metric"]
        )
        for t in self._trainers:
            for name, value in t["metrics"].items():
                reported.add_metric([t["name"], name], value)
        yield reported
