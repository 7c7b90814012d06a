"""The figures of a replay as a table."""

from __future__ import annotations

from typing import Any

from bftrainer.cli.shared.tables import print_table

LABELS = {
    "efficiency_u": "efficiency U",
    "linear_efficiency": "linear efficiency E",
    "samples": "samples",
    "node_hours": "node-hours in the pool",
    "equivalent_nodes": "equivalent nodes",
    "events": "events",
    "completed": "trainers completed",
    "runtime_h": "runtime (h)",
    "turnaround_h": "turnaround (h)",
    "mean_runtime_first_h": "mean runtime of the first (h)",
    "mean_turnaround_first_h": "mean turnaround of the first (h)",
    "rescales": "rescales decided",
    "preemptions": "preemptions",
    "decisions_preempted": "decisions preempted within T_fwd",
    "rescale_samples": "samples lost by rescaling",
    "preemption_samples": "samples lost by preemption",
    "stall_node_hours": "node-hours standing still",
    "init_node_hours": "node-hours initialising",
    "idle_node_hours": "node-hours unused",
    "unproven_decisions": "decisions not proven optimal",
    "decided_by": "decisions by allocator",
    "fallbacks": "decisions without the MILP that was asked for",
    "broken_log_lines": "broken lines of the log, left out",
    "decision_ms": "decision time (ms)",
    "wall_s": "wall time (s)",
}


def print_figures(figures: dict[str, Any]) -> None:
    """Print the figures that have a value, and the mean runtime of each model's trainers."""
    rows = [(label, _shown(figures[key])) for key, label in LABELS.items() if figures[key] is not None]
    by_model = figures["runtime_by_model_h"].items()
    rows += [(f"mean runtime of {model} (h)", _shown(hours)) for model, hours in by_model]
    print_table(("", ""), rows)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(part)}" for name, part in value.items())
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if value < 10 else f"{value:,.1f}"
