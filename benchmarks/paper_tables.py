"""The tables of docs/evidence/evaluation.md, by name: published figures beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from paper_results import (
    Results,
    Row,
    between_events,
    left_within,
    node_hours_until_done,
    per_decision,
    together_rows,
    weeks,
)

EQUAL = "equal shares"
BY_SPEED = ("AlexNet", "resnet18", "mnasnet1", "mobilenet", "shufflenet", "vgg16", "DenseNet")
"""Fastest first, as in Table 3."""
TABLE_3: Mapping[str, Sequence[float]] = {
    "AlexNet": (0.5, 0.6, 0.5, 0.6, 0.5, 0.5, 0.6),
    "resnet18": (0.4, 0.4, 0.4, 0.4, 0.5, 0.5, 0.5),
    "mnasnet1": (0.7, 0.7, 0.8, 0.8, 0.9, 0.9, 1.1),
    "mobilenet": (0.8, 0.9, 0.8, 0.9, 1.0, 1.2, 1.4),
    "shufflenet": (0.9, 1.0, 0.9, 1.2, 1.4, 1.6, 1.8),
    "vgg16": (2.3, 3.4, 4.1, 5.4, 6.1, 6.3, 7.4),
    "DenseNet": (4.1, 9.5, 16.1, 22.4, 29.2, 36.3, 42.3),
}
TABLE_4: Mapping[str, Sequence[float]] = {
    "AlexNet": (0.94, 2.4, 3.9, 5.3, 6.8, 7.6, 8.8),
    "resnet18": (0.77, 1.1, 1.5, 1.9, 2.1, 2.4, 2.6),
    "mnasnet1": (1.15, 2.3, 3.8, 5.5, 7.0, 9.4, 10.7),
    "mobilenet": (0.89, 1.8, 2.7, 3.8, 4.7, 5.9, 7.4),
    "shufflenet": (1.15, 2.1, 2.9, 4.2, 5.4, 7.2, 8.5),
    "vgg16": (1.98, 2.8, 3.3, 3.8, 4.5, 5.0, 5.2),
    "DenseNet": (2.58, 3.4, 4.6, 5.2, 6.4, 6.5, 7.8),
}


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column is text, the others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def table_1(results: Results) -> str:
    found = results.trace()
    own = found["table1"]
    shorter = {s["length_s"]: s for s in found["shorter"]}[600]
    return markdown(
        ("Summit", "published", "ours, first week"),
        [
            ("INC/h (Table 1)", "41.7", number(own["inc_per_h"])),
            ("DEC/h (Table 1)", "28.6", number(own["dec_per_h"])),
            ("Ratio (Table 1)", "11.1 %", percent(own["ratio"])),
            ("eq-Nodes (Table 1)", "524", number(own["equivalent_nodes"], 0)),
            ("events with nodes joining, per hour (section 2.1)", "42", number(found["join_events_per_h"])),
            ("events with nodes leaving, per hour (section 2.1)", "31", number(found["leave_events_per_h"])),
            ("fragments under 10 minutes (Figure 1)", "58 %", percent(shorter["fragments"])),
            ("their share of node-time (Figure 1)", "10 %", percent(shorter["node_time"])),
        ],
    )


def published(results: Results) -> str:
    runs = {
        EQUAL: results.row("hpo", allocator="equal"),
        "knapsack": results.row("hpo", allocator="knapsack", t_fwd_s=120),
        "MILP": results.row("milp"),
    }
    lines: Sequence[tuple[str, Callable[[Row], str]]] = (
        ("**U, ours**", lambda r: f"**{percent(r['efficiency_u'])}**"),
        ("linear efficiency E", lambda r: percent(r["linear_efficiency"])),
        ("samples, billions", lambda r: number(r["samples"] / 1e9, 3)),
        ("rescales decided", lambda r: number(r["rescales"], 0)),
        ("preemptions", lambda r: number(r["preemptions"], 0)),
        ("node-hours standing still", lambda r: number(r["stall_node_hours"], 0)),
        ("node-hours unused", lambda r: number(r["idle_node_hours"], 0)),
        ("trials completed", lambda r: number(r["completed"], 0)),
        (
            "decisions not proven optimal",
            lambda r: "no claim" if r["allocator"] == "equal" else number(r["unproven_decisions"], 0),
        ),
    )
    return markdown(
        ("", *runs),
        [
            ("U, published (Figure 9, section 5.1.2)", "75 %", "-", "80 %"),
            *((label, *(show(run) for run in runs.values())) for label, show in lines),
        ],
    )


def nodes(results: Results) -> str:
    runs: dict[object, list[Row]] = {}
    for row in results.rows("nodes"):
        runs.setdefault(row.get("pick"), []).append(row)
    columns = [
        (mine["efficiency_u"], equal["efficiency_u"], mine["equivalent_nodes"])
        for mine, equal in (sorted(pair, key=lambda r: r["allocator"] == "equal") for pair in runs.values())
    ]
    random = np.array([column for pick, column in zip(runs, columns, strict=True) if pick is not None])

    def line(name: str, u: float, equal: float, size: float) -> Sequence[str]:
        return name, percent(u), percent(equal), percent(u - equal), number(size)

    return markdown(
        ("nodes", "U", f"U, {EQUAL}", "difference", "N_eq"),
        [
            *(
                line("first 1,024 by name" if pick is None else f"`--pick {pick:.0f}`", *column)
                for pick, column in zip(runs, columns, strict=True)
            ),
            line("mean of the five", *random.mean(axis=0)),
            (
                "least and most",
                *(
                    f"{percent(a)} to {percent(b)}"
                    for a, b in zip(random.min(0)[:2], random.max(0)[:2], strict=True)
                ),
                " to ".join(percent(f(random[:, 0] - random[:, 1])) for f in (np.min, np.max)),
                f"{random[:, 2].min():.1f} to {random[:, 2].max():.1f}",
            ),
        ],
    )


def t_fwd(results: Results) -> str:
    equal = results.row("hpo", allocator="equal")
    rows = results.rows("hpo", allocator="knapsack")
    anywhere = left_within(results.traces, tuple(row["t_fwd_s"] for row in rows))
    return markdown(
        (
            "T_fwd (s)",
            "preempted within (7a)",
            "a node of the whole machine leaves within",
            "cost per event, samples (7b)",
            "return on it (8)",
            "U (9)",
        ),
        [
            *(
                (
                    f"{row['t_fwd_s']:.0f}",
                    percent(row["decisions_preempted"] / row["decisions"], 0),
                    percent(whole, 0),
                    number(per_decision(row), 0),
                    number(row["samples"] / row["rescale_samples"], 0),
                    percent(row["efficiency_u"]),
                )
                for row, whole in zip(rows, anywhere, strict=True)
            ),
            (
                EQUAL,
                "",
                "",
                number(per_decision(equal), 0),
                number(equal["samples"] / equal["rescale_samples"], 0),
                percent(equal["efficiency_u"]),
            ),
        ],
    )


def week(results: Results) -> str:
    ours, equal = weeks(results)
    u = [np.array([w.efficiency_u for w in r.windows if w.efficiency_u is not None]) for r in (ours, equal)]
    speedup = between_events(ours, equal)
    finite = speedup[np.isfinite(speedup)]
    lost = [
        [sum(getattr(w, f"{kind}_samples") for w in r.windows) / 1e9 for r in (ours, equal)]
        for kind in ("preemption", "rescale")
    ]
    return markdown(
        ("", "published", "ours"),
        [
            ("six-hour periods: mean of U", "80 %", percent(float(u[0].mean()))),
            ("periods with U of 90 % or more", "three (about)", f"{(u[0] >= 0.9).sum()} of {len(u[0])}"),
            (f"U over that of {EQUAL}, at most", "+32 %", f"+{100 * float((u[0] / u[1]).max() - 1):.0f} %"),
            (
                f"samples lost by preemption, beside {EQUAL} (11a)",
                "little difference",
                f"{lost[0][0]:.2f} and {lost[0][1]:.2f} billion",
            ),
            (
                f"samples lost by rescaling, beside {EQUAL} (11b)",
                "much less",
                f"{lost[1][0]:.2f} and {lost[1][1]:.2f} billion",
            ),
            (f"events worse than {EQUAL}", "6.9 %", percent(float((speedup < 1 - 1e-9).mean()))),
            ("events at least 2x better", "11 %", percent(float((speedup >= 2).mean()))),
            ("events at least 5x better", "3 %", percent(float((speedup >= 5).mean()))),
            ("mean speedup of an event", "2.9", number(float(finite.mean()), 2)),
        ],
    )


def objectives(results: Results) -> str:
    return markdown(
        ("T_fwd (s)", "U, throughput", "U, efficiency", "E, throughput", "E, efficiency"),
        [
            (
                f"{row['t_fwd_s']:.0f}",
                *(
                    percent(results.row("objectives", objective=o, t_fwd_s=row["t_fwd_s"])[name])
                    for name in ("efficiency_u", "linear_efficiency")
                    for o in ("throughput", "efficiency")
                ),
            )
            for row in results.rows("objectives", objective="throughput")
        ],
    )


def by_model(results: Results) -> str:
    runs = {
        o: results.row("parallel", jobs=250, objective=o, max_parallel=10)
        for o in ("throughput", "efficiency")
    }
    return markdown(
        ("mean runtime (h)", "throughput, published", "ours", "efficiency, published", "ours"),
        [
            (
                model,
                number(TABLE_3[model][1]),
                number(runs["throughput"][f"runtime_by_model_h_{model}"]),
                number(TABLE_4[model][1]),
                number(runs["efficiency"][f"runtime_by_model_h_{model}"]),
            )
            for model in BY_SPEED
        ],
    )


def parallel(results: Results) -> str:
    def line(row: Row) -> Sequence[str]:
        few = results.row("parallel", jobs=250, objective=row["objective"], max_parallel=row["max_parallel"])
        return (
            row["objective"],
            f"{row['max_parallel']:.0f}",
            number(node_hours_until_done(results.record("parallel", few)), 0),
            number(few["runtime_h_mean"], 2),
            percent(row["efficiency_u"]),
            percent(row["linear_efficiency"]),
            percent(row["idle_node_hours"] / row["node_hours"]),
        )

    return markdown(
        ("objective", "P_jmax", "node-hours (14a)", "mean runtime, h (14b)", "U (14c)", "E", "unused"),
        [line(row) for row in results.rows("parallel", jobs=None)],
    )


def runtimes(results: Results, objective: str, theirs: Mapping[str, Sequence[float]]) -> str:
    runs = results.rows("parallel", jobs=250, objective=objective)
    return markdown(
        ("published / ours", *(f"{run['max_parallel']:.0f}" for run in runs)),
        [
            (
                model,
                *(
                    f"{known:g} / {run[f'runtime_by_model_h_{model}']:.1f}"
                    for known, run in zip(theirs[model], runs, strict=True)
                ),
            )
            for model in BY_SPEED
        ],
    )


def models(results: Results) -> str:
    known = {"AlexNet": "75 %", "DenseNet": "83 %"}
    return markdown(
        ("model", "U, published", "U, ours", "E"),
        [
            (
                row["model"],
                known.get(row["model"], "over 75 %"),
                percent(row["efficiency_u"]),
                percent(row["linear_efficiency"]),
            )
            for row in results.rows("models")
        ],
    )


def costs(results: Results) -> str:
    rows = results.rows("costs")
    return markdown(
        ("costs times", *(f"{row['cost_scale']:.0f}" for row in rows)),
        [("U", *(percent(row["efficiency_u"]) for row in rows))],
    )


def pauses(results: Results) -> str:
    free = results.row("pauses", cost_scale=0)

    def line(name: str, row: Row) -> Sequence[str]:
        return (
            name,
            percent(row["efficiency_u"]),
            number(row["efficiency_u"] / free["efficiency_u"], 3),
            percent(row["linear_efficiency"]),
            number(row["mean_turnaround_first_h"]),
            number(row["mean_runtime_first_h"], 2),
        )

    return markdown(
        ("costs", "U", "of the bound", "E", "completion (h)", "runtime (h)"),
        [
            line("published: 18 s up, 12 s down", results.row("pauses", cost_scale=1, init_s=None)),
            *(
                line(f"(b) 0.07 s, init {row['init_s']:.0f} s", row)
                for row in results.rows("pauses")
                if "init_s" in row
            ),
            line("**(a) nothing: the bound**", free),
        ],
    )


def together(results: Results) -> str:
    fixed, auto = together_rows(results)
    (ten,) = (row for row in fixed if row["max_parallel"] == 10)
    static = ten["samples"] / ten["efficiency_u"]

    def line(name: str, row: Row) -> Sequence[str]:
        return (
            name,
            percent(row["linear_efficiency"]),
            number(row["samples"] / 1e9),
            percent(row["samples"] / static),
            number(row["completed"], 0),
            number(row.get("mean_turnaround_first_h")),
            number(row.get("mean_runtime_first_h"), 2),
            percent(row["idle_node_hours"] / row["node_hours"]),
        )

    return markdown(
        (
            "trainers at once",
            "E",
            "samples, billions",
            "of A_s at 10",
            "completed",
            "completion (h)",
            "runtime (h)",
            "unused",
        ),
        [
            line("published costs, P_jmax = 10", results.row("pauses", cost_scale=1, init_s=None)),
            *(line(f"P_jmax = {row['max_parallel']:.0f}", row) for row in fixed),
            *(
                line(
                    "auto" + (f", k = {row['nodes_per_trainer']:.0f}" if "nodes_per_trainer" in row else ""),
                    row,
                )
                for row in sorted(auto, key=lambda row: -row.get("nodes_per_trainer", 0))
            ),
        ],
    )


def knowing(results: Results) -> str:
    def u(scale: float, **wanted: object) -> float:
        plain = {"departure_groups": "none", "t_fwd_s": 120.0, "init_s": None}
        return float(results.row("knowing", **{"cost_scale": scale, **plain, **wanted})["efficiency_u"])

    policies: Mapping[str, Mapping[str, object]] = {
        "published policy": {},
        "(d) joined together": {"departure_groups": "joined"},
        "(d) same cabinet": {"departure_groups": "cabinet"},
        "(e) T_fwd auto": {"t_fwd_s": None},
        "(b)": {"init_s": 5.0},
        "(b) and (d) joined together": {"init_s": 5.0, "departure_groups": "joined"},
        "(b) and (d) same cabinet": {"init_s": 5.0, "departure_groups": "cabinet"},
        "(b) and (e)": {"init_s": 5.0, "t_fwd_s": None},
    }
    return markdown(
        ("", "U, costs as published", "U, costs x 10", "x 10, over the published policy"),
        [
            (
                name,
                percent(u(1, **p)),
                percent(u(10, **p)),
                f"{100 * (u(10, **p) / u(10) - 1):+.0f} %" if p else "",
            )
            for name, p in policies.items()
        ],
    )


TABLES: Mapping[str, Callable[[Results], str]] = {
    "table-1": table_1,
    "published": published,
    "nodes": nodes,
    "t-fwd": t_fwd,
    "week": week,
    "objectives": objectives,
    "by-model": by_model,
    "parallel": parallel,
    "table-3": lambda results: runtimes(results, "throughput", TABLE_3),
    "table-4": lambda results: runtimes(results, "efficiency", TABLE_4),
    "models": models,
    "costs": costs,
    "pauses": pauses,
    "together": together,
    "knowing": knowing,
}
