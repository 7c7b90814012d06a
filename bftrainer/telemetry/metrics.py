"""Metrics for Prometheus: counts since the daemon began, and the state of this moment."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bftrainer.model.text import shown

QUICK = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
SLOW = (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_SERIES = 10_000

_OF_TRAINERS = {
    "samples": "Samples trained so far.",
    "step": "Steps taken so far.",
    "epoch": "Passes over the data so far.",
    "rate": "Samples per second at the moment.",
}


class Metrics:
    """Counters of the running daemon, in a registry of its own."""

    def __init__(self, version: str) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"bftrainer_{name}", meaning, labels, registry=registry)

        def seconds(name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"bftrainer_{name}_seconds", meaning, labels, registry=registry, buckets=buckets)

        self.events = counter("events", "Events that were taken.", "kind")
        self.decisions = counter("decisions", "Plans, by how sure they are.", "status")
        self.fallbacks = counter(
            "fallbacks", "Plans of another allocator, because the solver of the chosen one failed."
        )
        self.solve = seconds("solve", "Time to make a plan.", QUICK)
        self.actions = counter("actions", "What trainers were told to do.", "kind")
        self.ended = counter("trainers_ended", "Trainers that ended.", "status")
        self.rescales = counter("rescales", "Changes of nodes after which trainers went on.", "kind")
        self.pauses = seconds("pause", "How long a member stood still in a rescale.", SLOW, "kind")
        self.lost_steps = counter("lost_steps", "Steps that trainers had to repeat.")
        self.polls = counter("polls", "Looks at the scheduler.", "result")
        self.poll = seconds("poll", "Time of a look at the scheduler.", SLOW)
        self.pilots = counter("pilot_events", "What became of pilots.", "event")
        self.claims = counter("claims", "Main jobs for which nodes of ours were given back.")
        self.vacate = seconds("vacate", "From seeing a claim to its pilots' cancellation.", SLOW)
        self.main_wait = seconds(
            "main_job_wait",
            "How long main jobs waited for the scheduler and us alone, by whether nodes of ours were in "
            "their way.",
            SLOW,
            "affected",
        )
        self.in_vain = counter(
            "in_vain", "Main jobs for which nodes of ours were given back, but which did not start."
        )
        self.store_failures = counter("store_failures", "Writes to the store that failed.")
        self.bound_hits = counter(
            "bound_hits", "How often users, clients or agents have hit a bound.", "bound"
        )
        self.errors = counter("errors", "Errors, by the part in which they happened.", "kind")
        Info("bftrainer_build", "What runs.", registry=registry).info(
            {"version": version, "python": platform.python_version()}
        )


def render(
    registry: CollectorRegistry,
    status: Mapping[str, Any],
    trainers: Iterable[Mapping[str, Any]],
    most: int = MOST_SERIES,
) -> bytes:
    """The text format: what was counted, what `Service.status` says, and the trainers that hold nodes.

    Trainers have `most` series together; those for which there is no room are counted.
    """
    moment = CollectorRegistry()
    moment.register(_Snapshot(status, trainers, most))
    return generate_latest(registry) + generate_latest(moment)


class _Snapshot(Collector):
    """One moment as metrics."""

    def __init__(self, status: Mapping[str, Any], trainers: Iterable[Mapping[str, Any]], most: int) -> None:
        self._status, self._left_out = status, 0
        self._trainers = list[Mapping[str, Any]]()
        for t in trainers:
            most -= 1 + len(_OF_TRAINERS) + len(t["metrics"])
            if most < 0:
                self._left_out += 1
            else:
                self._trainers.append(t)

    def collect(self) -> Iterator[Metric]:
        """All metrics of the moment."""
        status = self._status
        pool = GaugeMetricFamily("bftrainer_pool_nodes", "Nodes of the pool.", labels=["state"])
        pool.add_metric(["used"], status["pool"] - status["unused"])
        pool.add_metric(["unused"], status["unused"])
        yield pool
        yield GaugeMetricFamily("bftrainer_pilots", "Nodes that pilots of ours hold.", status["pilots"])
        room = GaugeMetricFamily(
            "bftrainer_headroom_nodes", "Idle nodes left to main jobs.", labels=["state"]
        )
        for name in ("wanted", "free", "usable"):
            room.add_metric([name], status["headroom"][name])
        yield room
        yield GaugeMetricFamily(
            "bftrainer_promise_extra",
            "Share of what is idle or ours that is left to main jobs for the promise.",
            status["headroom"]["extra"],
        )
        yield GaugeMetricFamily(
            "bftrainer_degraded", "1 while something does not work.", status["state"] == "degraded"
        )
        yield GaugeMetricFamily("bftrainer_up_seconds", "For how long the daemon has run.", status["up_s"])
        known = GaugeMetricFamily("bftrainer_trainers", "Trainers that the store knows.", labels=["status"])
        for name, count in status["trainers"].items():
            known.add_metric([name], count)
        yield known
        yield from self._of_trainers()

    def _of_trainers(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "bftrainer_trainers_left_out", "Trainers with nodes that this answer leaves out.", self._left_out
        )
        labelled = [([shown(t["user"]), shown(t["name"])], t) for t in self._trainers]
        nodes = GaugeMetricFamily("bftrainer_trainer_nodes", "Nodes that train.", labels=["user", "trainer"])
        for labels, t in labelled:
            nodes.add_metric(labels, len(t["members"]))
        yield nodes
        for key, meaning in _OF_TRAINERS.items():
            family = GaugeMetricFamily(f"bftrainer_trainer_{key}", meaning, labels=["user", "trainer"])
            for labels, t in labelled:
                family.add_metric(labels, t[key] or 0.0)
            yield family
        reported = GaugeMetricFamily(
            "bftrainer_trainer_metric", "What the script last reported.", labels=["user", "trainer", "metric"]
        )
        for labels, t in labelled:
            for name, value in t["metrics"].items():
                reported.add_metric([*labels, shown(name)], value)
        yield reported
