"""The pictures of docs/evidence/evaluation.md, by name. Colours suit the colour-blind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, PercentFormatter
from paper_results import Results, left_within, node_hours_until_done, per_decision, together_rows, weeks
from paper_tables import BY_SPEED, EQUAL

from bftrainer.replay.report.drawing import COLOURS


def panels(columns: int, rows: int = 1, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(11, height * rows), layout="constrained")
    return figure, list(np.ravel(figure.subplots(rows, columns)))


def line(
    axes: Axes, x: Sequence[float], y: Sequence[float], label: str, colour: int, mark: str = "o"
) -> None:
    axes.plot(x, y, marker=mark, color=COLOURS[colour], label=label)


def published_at(axes: Axes, value: float, what: str, colour: int) -> None:
    axes.axhline(value, color=COLOURS[colour], linestyle=":", label=f"published: {what}")


def draw_t_fwd(results: Results) -> Figure:
    rows, equal = results.rows("hpo", allocator="knapsack"), results.row("hpo", allocator="equal")
    figure, (a, b, c, d) = panels(2, 2)
    x = [row["t_fwd_s"] for row in rows]
    preempted = [row["decisions_preempted"] / row["decisions"] for row in rows]
    line(a, x, preempted, "1,024 nodes: trainers lose nodes", 0)
    whole = left_within(results.traces, tuple(x))
    line(a, x, whole, "whole machine: nodes leave", 2, "s")
    a.plot([170], [0.9], "D", color=COLOURS[1], label="published: 90 % from 170 s on")
    a.set(title="7a. Preemption within T_fwd", ylabel="share of decisions", ylim=(0, 1))
    line(b, x, [per_decision(row) for row in rows], "optimum", 0)
    b.axhline(per_decision(equal), color=COLOURS[1], label=EQUAL)
    b.set(title="7b. What rescaling costs", ylabel="samples per decision", yscale="log", ylim=(1e4, 3e6))
    line(c, x, [row["samples"] / row["rescale_samples"] for row in rows], "optimum", 0)
    c.axhline(equal["samples"] / equal["rescale_samples"], color=COLOURS[1], label=EQUAL)
    c.set(
        title="8. Return on that", ylabel="samples processed per sample lost", yscale="log", ylim=(10, 1000)
    )
    for axes in (b, c):
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    line(d, x, [row["efficiency_u"] for row in rows], "optimum", 0)
    d.axhline(equal["efficiency_u"], color=COLOURS[1], label=EQUAL)
    published_at(d, 0.80, "80 % at 120 s", 0)
    published_at(d, 0.75, f"75 %, {EQUAL}", 1)
    d.set(title="9. Efficiency U", ylabel="U", ylim=(0.66, 0.84))
    for axes in (a, d):
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    for axes in (a, b, c, d):
        axes.set_xlabel("forward-looking time T_fwd (s)")
    a.legend(loc="lower right")
    b.legend(loc=(0.55, 0.65))
    c.legend(loc=(0.55, 0.12))
    d.legend(loc="lower right")
    return figure


def draw_week(results: Results) -> Figure:
    figure, (top, left, right) = panels(1, 3, 2.8)
    for run, label, colour, mark in zip(weeks(results), ("optimum", EQUAL), (0, 1), "os", strict=True):
        days = [(w.begin + w.end) / 2 / 86400 for w in run.windows]
        line(top, days, [w.efficiency_u or np.nan for w in run.windows], label, colour, mark)
        line(left, days, [w.preemption_samples / 1e6 for w in run.windows], label, colour, mark)
        line(right, days, [w.rescale_samples / 1e6 for w in run.windows], label, colour, mark)
    top.set(title="10. Efficiency U in every six hours", ylabel="U")
    top.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    left.set(title="11a. Lost by preemption", ylabel="million samples")
    right.set(title="11b. Lost by decided rescales", ylabel="million samples")
    for axes in (top, left, right):
        axes.set_xlabel("days since 2021-02-11 00:48:48 UTC")
        axes.legend()
    return figure


def draw_objectives(results: Results) -> Figure:
    figure, (left, right) = panels(2)
    places = np.arange(len(BY_SPEED))
    for i, objective in enumerate(("throughput", "efficiency")):
        run = results.row("parallel", jobs=250, objective=objective, max_parallel=10)
        hours = [run[f"runtime_by_model_h_{model}"] for model in BY_SPEED]
        left.bar(places + 0.4 * i - 0.2, hours, 0.38, color=COLOURS[i], label=objective)
        rows = results.rows("objectives", objective=objective)
        x, y = [row["t_fwd_s"] for row in rows], [row["efficiency_u"] for row in rows]
        line(right, x, y, objective, i, "os"[i])
    left.set(title="12. Runtime by model, P_jmax = 10", ylabel="mean hours from first node to end")
    left.set_xticks(places, BY_SPEED, rotation=30, ha="right")
    right.set(title="13. Efficiency U", xlabel="forward-looking time T_fwd (s)", ylabel="U")
    right.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
    for axes in (left, right):
        axes.legend(title="objective")
    return figure


def draw_parallel(results: Results) -> Figure:
    figure, (left, middle, right) = panels(3)
    for i, objective in enumerate(("throughput", "efficiency")):
        few = results.rows("parallel", jobs=250, objective=objective)
        all_ = results.rows("parallel", jobs=None, objective=objective)
        x = [row["max_parallel"] for row in few]
        spent = [node_hours_until_done(results.record("parallel", row)) for row in few]
        line(left, x, spent, objective, i, "os"[i])
        line(middle, x, [row["runtime_h_mean"] for row in few], objective, i, "os"[i])
        line(right, x, [row["efficiency_u"] for row in all_], objective, i, "os"[i])
    left.set(title="14a. Node-hours for 250 trainers", ylabel="node-hours", ylim=(0, None))
    middle.set(title="14b. Their mean runtime", ylabel="hours from first node to end", ylim=(0, None))
    right.set(title="14c. Efficiency U, whole week", ylabel="U")
    right.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    for axes in (left, middle, right):
        axes.set_xlabel("trainers at once at most, P_jmax")
        axes.legend(title="objective")
    return figure


def draw_trainers(results: Results) -> Figure:
    figure, (left, right) = panels(2)
    rows = results.rows("models")
    left.bar(
        [row["model"] for row in rows], [row["efficiency_u"] for row in rows], color=COLOURS[0], label="ours"
    )
    left.plot([0, len(rows) - 1], [0.75, 0.83], "D", color=COLOURS[1], label="published: 75 % and 83 %")
    left.set(title="15. Efficiency U by model, 60 hours", ylabel="U", ylim=(0.6, 1))
    left.tick_params(axis="x", rotation=30)
    rows = results.rows("costs")
    line(right, [r["cost_scale"] for r in rows], [r["efficiency_u"] for r in rows], "published policy", 0)
    plain = [r for r in results.rows("knowing", departure_groups="none", t_fwd_s=120.0) if "init_s" in r]
    line(
        right,
        [r["cost_scale"] for r in plain],
        [r["efficiency_u"] for r in plain],
        "(b) short pauses, warming up in the background",
        2,
        "s",
    )
    right.set(
        title="16. Efficiency U with dearer rescales", xlabel="all costs times", ylabel="U", ylim=(0, 1)
    )
    for axes in (left, right):
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.legend(loc="upper left" if axes is left else "lower left")
    return figure


def draw_tradeoff(results: Results) -> Figure:
    figure, axes_of = panels(2, height=4.6)
    fixed, auto = together_rows(results)
    start = results.row("pauses", cost_scale=1, init_s=None)
    for axes, key, what in zip(
        axes_of,
        ("mean_turnaround_first_h", "mean_runtime_first_h"),
        ("completion: from submission to end", "runtime: from first node to end"),
        strict=True,
    ):
        for rows, label, colour, mark, at in (
            (fixed, "fixed P_jmax (at the point)", 0, "o", "max_parallel"),
            (auto, "auto: k nodes of the pool for each (at the point)", 2, "s", "nodes_per_trainer"),
        ):
            known = sorted((row for row in rows if key in row), key=lambda row: row["linear_efficiency"])
            x, y = [row[key] for row in known], [row["linear_efficiency"] for row in known]
            line(axes, x, y, label, colour, mark)
            for row in known:
                text = f"{row[at]:.0f}" if at in row else "all"
                place = (row[key], row["linear_efficiency"])
                beside = (-7, 0) if colour == 0 else (7, -5)
                axes.annotate(
                    text,
                    place,
                    beside,
                    textcoords="offset points",
                    color=COLOURS[colour],
                    fontsize=9,
                    ha="right" if colour == 0 else "left",
                )
        axes.plot(
            start[key],
            start["linear_efficiency"],
            "D",
            color=COLOURS[1],
            label="published costs, P_jmax = 10",
        )
        for target in (0.85, 0.95):
            axes.axhline(target, color="#888888", linestyle=":", linewidth=1)
        axes.set(
            title=what.split(":")[0].capitalize() + " against yield",
            xlabel=f"mean {what} (h), first 400 trials",
        )
        axes.set_ylabel("linear efficiency E")
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    handles, labels = axes_of[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


PICTURES: Mapping[str, Callable[[Results], Figure]] = {
    "t-fwd": draw_t_fwd,
    "week": draw_week,
    "objectives": draw_objectives,
    "parallel": draw_parallel,
    "trainers": draw_trainers,
    "trade-off": draw_tradeoff,
}
