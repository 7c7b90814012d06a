"""The figures of a replay as a table."""

from __future__ import annotations

from typing import Any

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
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False)
    for key, label in LABELS.items():
        if figures[key] is not None:
            table.add_row(label, _shown(figures[key]))
    for model, hours in figures["runtime_by_model_h"].items():
        table.add_row(f"mean runtime of {model} (h)", _shown(hours))
    Console().print(table)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(part)}" for name, part in value.items())
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if value < 10 else f"{value:,.1f}"
