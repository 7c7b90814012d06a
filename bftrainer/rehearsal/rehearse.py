"""Rehearses a script: conducts its runs, reads their records, and compares them with the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bftrainer.elastic.recorded.directions import CUT, RECORD
from bftrainer.model.trainer import TrainerSpec
from bftrainer.rehearsal import runs
from bftrainer.rehearsal.compare import compare_final, compare_steps, compare_variables, unseeded
from bftrainer.rehearsal.conduct import Conducted, Conductor, conducting
from bftrainer.rehearsal.contents import Peace, compare_figures, compare_files
from bftrainer.rehearsal.deviations import Aspect, Deviation
from bftrainer.rehearsal.explain import Cause, explain, of_unused
from bftrainer.rehearsal.files import files_of
from bftrainer.rehearsal.read import processes_of, recorded
from bftrainer.rehearsal.records import RunRecord, latest_change
from bftrainer.rehearsal.yardstick import Yardstick

NODES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Outcome of a rehearsal: the runs with their deviations, and the causes that explain these."""

    name: str
    launcher: str
    alone: RunRecord
    others: Sequence[RunRecord]
    deviations: Sequence[Deviation]
    causes: Sequence[Cause]
    yardstick: Yardstick
    seconds: float
    cut: int | None = None

    @property
    def is_same(self) -> bool:
        """True if rounding and noise explain all differences."""
        return not any(each.is_fault for each in self.deviations)


def rehearse(
    spec: TrainerSpec,
    written: Mapping[str, Any],
    root: Path,
    *,
    steps: int,
    whole_s: float,
    most_s: float,
    say: Callable[[str], None],
) -> Rehearsal:
    """Conduct all runs of a script in folders below `root`, and compare them.

    Args:
        spec: of the trainer.
        written: the same, as its user has written it.
        root: an empty folder.
        steps: the script takes at least this number, or all that it has.
        whole_s: a script that trains for no longer is run to its own end.
        most_s: a run that takes longer is given up.
        say: shows a line of progress.
    """
    wanted = max(NODES, *runs.sizes(spec))
    gone = list[Conducted]()
    cut: int | None = None
    with conducting(root, spec, written, nodes=wanted, most_s=most_s, say=say) as conductor:
        gone += _go(conductor, [runs.first(steps, whole_s)], say)
        alone = _record(gone[0])
        cut_file = root / runs.ALONE / CUT
        cut = int(cut_file.read_text(encoding="utf-8")) if cut_file.exists() else None
        if alone.is_whole and alone.steps:
            for group in runs.others(spec, alone.length, cut, latest_change(alone), alone.batch):
                gone += _go(conductor, group, say)
    files = files_of({each.plan.name: each.copied for each in gone})
    found = {each.plan.name: replace(_record(each), files=files[each.plan.name]) for each in gone}
    return judge(spec, found, cut, conductor.seconds)


def judge(spec: TrainerSpec, found: Mapping[str, RunRecord], cut: int | None, seconds: float) -> Rehearsal:
    """Compare the records of all runs with the first, and explain how they deviate. Pure."""
    if cut is not None and spec.launcher != "native":  # which always takes one step more
        found = {name: _until(run, cut) for name, run in found.items()}
    alone = found[runs.ALONE]
    again, seed = found.get(runs.AGAIN), found.get(runs.SEED)
    yardstick = Yardstick.of(alone, again, seed)
    deviations, causes = list[Deviation](), list[Cause]()
    if not alone.is_whole or not alone.steps or alone.trouble:
        deviations.append(_ended(alone))
        causes += explain(alone, alone, deviations, spec.launcher)
    strange = list(unseeded(alone, again)) if again is not None and again.steps else []
    if strange and again is not None:
        deviations += strange
        causes += explain(again, alone, strange, spec.launcher)
    lost = [each for each in (again, seed) if each is not None and not _is_known(each)]
    for each in lost:  # without it nobody knows what rounding or random numbers explain
        deviations.append(end := _ended(each))
        causes += explain(each, alone, [end], spec.launcher)
    others = [found[name] for name in (runs.TWO, runs.JOINED, runs.RESUMED) if name in found]
    tolerance = max(1e-6, 10 * yardstick.rounded((0, alone.length)))
    peace = Peace(
        alone=alone,
        again=again,
        seed=seed,
        tolerance=tolerance,
        slack=0.5 if yardstick.batch_norm else 0.0,
        noise=yardstick.drawn(alone),
    )
    for run in others:
        compared = [] if lost else _deviations(peace, run, yardstick)
        mine = compared if _is_known(run) else [_ended(run)]
        deviations += mine
        if not strange:
            causes += explain(run, alone, mine, spec.launcher)
    deviations += (late := _unused(alone))
    causes += [of_unused(each) for each in late]
    return Rehearsal(
        name=spec.name,
        launcher=spec.launcher,
        alone=alone,
        others=others,
        deviations=deviations,
        causes=causes,
        yardstick=yardstick,
        seconds=seconds,
        cut=cut,
    )


def _deviations(peace: Peace, run: RunRecord, yardstick: Yardstick) -> list[Deviation]:
    found = list(compare_steps(peace.alone, run, yardstick))
    if not any(each.aspect == Aspect.WEIGHTS for each in found):
        found += compare_final(peace.alone, run, yardstick)
    found += compare_figures(peace, run)
    found += compare_files(peace, run)
    if run.name == runs.RESUMED:
        others = [each for each in (peace.again, peace.seed) if each is not None]
        found += compare_variables(peace.alone, others, run)
    return found


def _until(run: RunRecord, cut: int) -> RunRecord:
    """A run without the step that a process has taken which began where the run was to end."""
    if run.length <= cut:
        return run
    kept = {key: facts for key, facts in run.steps.items() if key[0] or key[1] <= cut}
    return replace(run, steps=kept, final={})


def _is_known(run: RunRecord) -> bool:
    return run.is_whole and not run.trouble


def _ended(run: RunRecord) -> Deviation:
    text = f"{run.status}: {run.reason}"
    if run.is_whole:
        text = "no optimizer of PyTorch has taken a step in a process of this Python"
    return Deviation(aspect=Aspect.END, run=run.name, text=run.trouble or text)


def _unused(alone: RunRecord) -> list[Deviation]:
    return [
        Deviation(
            aspect=Aspect.SETTINGS,
            run=alone.name,
            step=step,
            text=f"an optimizer that was made after step {step}, over weights of another, never takes a step",
            facts={"unused": True},
        )
        for step in alone.unused
    ]


def _go(conductor: Conductor, plans: Sequence[runs.RunPlan], say: Callable[[str], None]) -> list[Conducted]:
    say(f"{'; '.join(plan.title for plan in plans)} ...")
    gone = conductor.run(plans)
    for each in gone:
        say(f"{each.plan.title}: {each.view['status']} after {each.seconds:.1f} s")
    return gone


def _record(each: Conducted) -> RunRecord:
    return recorded(
        each.plan.name,
        each.plan.nodes,
        processes_of(each.folder / RECORD),
        title=each.plan.title,
        status=each.view["status"],
        reason=each.view["reason"].partition("; see bftrainer logs")[0],
        events=each.events,
    )
