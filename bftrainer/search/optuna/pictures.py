"""A page about a study, with pictures by Optuna: its history, which parameters matter, all trials at once."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import optuna
from optuna.visualization import matplotlib as plots

from bftrainer.model.text import counted
from bftrainer.search.optuna.export import as_optuna

STYLE = (
    "body{font-family:sans-serif;max-width:60em;margin:auto}table{border-collapse:collapse}"
    "td,th{padding:.2em .6em;text-align:left}"
)
MOST_INCHES = 40.0
"""A picture is no wider or higher, in inches of 110 dots; what is beyond is cut off."""
WHY = 300
"""Characters of the reason why there is no picture, at most."""
PLOTS: Mapping[str, Callable[[optuna.Study], Any]] = {
    "History": plots.plot_optimization_history,
    "Intermediate values": plots.plot_intermediate_values,
    "Importance of the parameters": plots.plot_param_importances,
    "Parallel coordinates": plots.plot_parallel_coordinate,
}


def page(study: Mapping[str, Any]) -> str:
    """A study, as the API tells of it, as an HTML page without links to elsewhere.

    History and importance count every trial that has a result, those that ended early as well.
    """
    mpl.use("agg")
    mpl.rcParams["text.parse_math"] = False  # "$\\frac{" of a choice or a metric is no formula
    made = as_optuna(study)
    whole = optuna.create_study(direction=study["direction"])
    for trial in made.trials:
        if trial.value is not None:
            whole.add_trial(
                optuna.trial.create_trial(
                    value=trial.value, params=trial.params, distributions=trial.distributions
                )
            )
    parts = [f"<h1>{escape(study['name'])}</h1>", f"<p>{escape(_summary(study))}</p>"]
    for title, plot in PLOTS.items():
        source = made if plot is plots.plot_intermediate_values else whole
        parts += [f"<h2>{title}</h2>", _picture(plot, source)]
    return (
        f"<!doctype html><meta charset=utf-8><title>{escape(study['name'])}</title><style>{STYLE}</style>"
        + "".join(parts)
        + _table(study)
    )


def _summary(study: Mapping[str, Any]) -> str:
    best = study["best"]
    text = f"{study['status']}; {counted(study['trials'], 'trial')}, {study['sampler']}, {study['stopping']}"
    if best:
        text += f"; best {study['metric']} {best['value']:.6g} in trial {best['number']}"
        if best.get("short_of") is not None:
            text += f" (not trained to a rung: after {best['samples']:,} of {best['short_of']:,} samples)"
        text += f": {best['params']}"
    return text


def _picture(plot: Callable[[optuna.Study], Any], study: optuna.Study) -> str:
    """A picture as a part of the page, or why there is none."""
    plt.close("all")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = io.BytesIO()
        try:
            axes = plot(study)
            figure = np.ravel(np.asarray(axes, dtype=object))[0].figure
            box = figure.get_tightbbox()  # long choices make it wide
            fits = max(box.width, box.height) < MOST_INCHES
            figure.savefig(out, format="png", dpi=110, bbox_inches="tight" if fits else None)
        except Exception as error:  # noqa: BLE001  too few trials, or what cannot be drawn: the page goes on
            return f"<p>no picture: {escape(str(error)[:WHY])}</p>"
        finally:
            plt.close("all")
    return f'<img src="data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}">'


def _table(study: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(name for t in study["table"] for name in t["params"]))
    head = "".join(f"<th>{escape(name)}" for name in ["trial", "status", "samples", "value", *names])
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td>{escape(str(cell))}"
            for cell in (
                *(t[key] for key in ("number", "status", "samples", "value")),
                *(t["params"].get(name, "") for name in names),
            )
        )
        for t in study["table"]
    )
    return f"<h2>Trials</h2><table><tr>{head}{rows}</table>"
