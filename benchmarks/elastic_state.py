"""Measures what a change of members costs those who stay: streamed states beside a plain broadcast.

python benchmarks/elastic_state.py --millions 10 --millions 100 --repeat 5

Two members train a model of --millions million float32 parameters with SGD and momentum; a third node joins,
gets the state, then leaves or is killed, again and again. Everything is real but the computation, which is a
sleep of --step-s, as on an accelerator: processes, groups, gradients' exchange on loopback. Of large models
only --active million parameters get gradients, so that three copies fit into memory; all have momentum, and
all of it is handed over. With --ema an average of the weights is, too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bftrainer.testing.workers import ForkedWorkers

TENSOR = 4_000_000  # elements of one parameter


def worker(millions: int, active: int, step_s: float, folder: Path, *, plain: bool, ema: bool) -> None:
    """Train until told to leave; notes the length of every step."""
    import torch
    from torch.optim.swa_utils import get_ema_multi_avg_fn as averaged

    from bftrainer import elastic

    torch.set_num_threads(1)
    sizes = [TENSOR] * (millions * 1_000_000 // TENSOR) + [millions * 1_000_000 % TENSOR]
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(n)) for n in sizes if n])
    kind = type("Plain", (torch.optim.SGD,), {}) if plain else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=1e-4, momentum=0.9)
    frozen = list(model)[max(1, active * 1_000_000 // TENSOR) :]
    for parameter in frozen:
        optimizer.state[parameter]["momentum_buffer"] = torch.ones_like(parameter)
        parameter.requires_grad_(False)
    data = torch.utils.data.TensorDataset(torch.ones(1_000_000))
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=averaged(0.999)) if ema else None
    parts = {} if average is None else {"ema": average}
    run = elastic.Run(model, optimizer, data, batch_size=1, epochs=1_000_000, parts=parts)
    if average is not None:
        run.after_step(lambda: average.update_parameters(model))
    with (folder / f"steps-{time.time_ns()}.jsonl").open("a", buffering=1) as out:
        began = time.monotonic()
        for (x,) in run:
            loss = sum(p.mean() for p in model if p.requires_grad) * x.mean()
            loss.backward()
            time.sleep(step_s)
            run.step()
            now = time.monotonic()
            out.write(json.dumps({"began": began, "s": now - began, "size": run.size}) + "\n")
            began = now


def measure(millions: int, options: argparse.Namespace, *, plain: bool) -> dict[str, Any]:
    """All joins, leaves and deaths of one size and way."""
    pauses: dict[str, list[float]] = {"join": [], "leave": [], "kill": []}
    until_share, received, slow = [], [], []
    with tempfile.TemporaryDirectory() as name, ForkedWorkers(Path(name)) as workers:
        command = [sys.executable, str(Path(__file__).resolve()), "--worker", "--millions", str(millions)]
        command += ["--active", str(options.active), "--step-s", str(options.step_s), "--folder", name]
        command += ["--plain"] if plain else []
        command += ["--ema"] if options.ema else []

        def changed(kind: str) -> float:
            """Collect the members' pauses of the present generation; returns when the last went on."""
            found = [
                workers.wait(n, "joined", 300, lambda m: m["generation"] == workers.generation) for n in "ab"
            ]
            pauses[kind] += [m["pause_s"] for m in found]
            return max(m["at"] for m in found)

        for node in "ab":
            workers.start(node, command)
        for node in "ab":
            workers.wait(node, "ready", 300)
        workers.regroup("a", "b")
        for node in "ab":
            workers.wait(node, "joined", 300)
        for i in range(options.repeat):
            newcomer = f"c{i}"
            workers.start(newcomer, command)
            workers.wait(newcomer, "ready", 300)
            calm = time.monotonic()
            time.sleep(5 * options.step_s + 1)
            published = time.monotonic()
            workers.regroup("a", "b", newcomer)
            entered = changed("join")
            there = workers.wait(newcomer, "joined" if plain else "caught_up", 600)
            until_share.append(there["at"] - published)
            received.append(millions * 8_000_000 if plain else there["bytes"])
            slow.append(slowdown(Path(name), calm, published, entered, there["at"]))
            time.sleep(2 * options.step_s)
            if i % 2:
                workers.kill(newcomer)
                workers.wait(newcomer, "exited", 60)
                workers.regroup("a", "b")
                changed("kill")
            else:
                workers.regroup("a", "b", leaving=[newcomer])
                changed("leave")
                workers.wait(newcomer, "exited", 60)
    return {
        "millions": millions,
        "way": "broadcast" if plain else "streamed",
        **{f"{kind}_median_s": statistics.median(found) for kind, found in pauses.items() if found},
        **{f"{kind}_max_s": max(found) for kind, found in pauses.items() if found},
        "megabytes": statistics.median(received) / 1e6,
        "until_share_s": statistics.median(until_share),
        "slowdown": None if plain else statistics.median(slow),
        "changes": {kind: len(found) for kind, found in pauses.items()},
    }


def slowdown(folder: Path, calm: float, published: float, entered: float, there: float) -> float:
    """Return how much longer members' steps were between `entered` and `there` than between the other two."""
    steps = [json.loads(line) for p in folder.glob("steps-*") for line in p.read_text().splitlines()]

    def mean(start: float, end: float) -> float:
        """Return the mean length in s of the steps within a span; NaN if there is none."""
        lengths = [s["s"] for s in steps if start <= s["began"] and s["began"] + s["s"] <= end]
        return statistics.mean(lengths) if lengths else float("nan")

    return mean(entered, there) / mean(calm, published) - 1


def table(rows: list[dict[str, Any]]) -> str:
    """Pauses as median / maximum over members and changes."""

    def cell(row: dict[str, Any], kind: str) -> str:
        """Return median and maximum of a kind of change as text."""
        if f"{kind}_median_s" not in row:
            return "-"
        return f"{row[f'{kind}_median_s']:.3f} / {row[f'{kind}_max_s']:.3f}"

    lines = [
        "| parameters | way | pause: join | leave | SIGKILL | to a newcomer | until its share | steps |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [f"{row['millions']} M", row["way"], *(cell(row, k) for k in ("join", "leave", "kill"))]
        cells += [f"{row['megabytes']:.0f} MB", f"{row['until_share_s']:.1f} s"]
        cells += ["-" if row["slowdown"] is None else f"{row['slowdown']:+.0%}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure for each number of parameters and print the table, or be a worker."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--millions", type=int, action="append", help="of parameters [10, 100, 500]")
    parser.add_argument("--repeat", type=int, default=4, help="joins, and half as many leaves and deaths")
    parser.add_argument("--active", type=int, default=40, help="million parameters that get gradients")
    parser.add_argument("--step-s", type=float, default=0.2, help="computation of a step")
    parser.add_argument("--json", type=Path, help="write the rows here as well")
    parser.add_argument("--ema", action="store_true", help="with an average of the weights, as a part")
    for hidden in ("--worker", "--plain"):
        parser.add_argument(hidden, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(
            options.millions[0],
            options.active,
            options.step_s,
            options.folder,
            plain=options.plain,
            ema=options.ema,
        )
        return
    rows = []
    for millions in options.millions or [10, 100, 500]:
        for plain in (False, True):
            rows.append(measure(millions, options, plain=plain))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
