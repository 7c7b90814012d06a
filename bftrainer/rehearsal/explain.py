"""Explains deviations: the usual causes of their pattern, each with its remedy. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bftrainer.rehearsal.deviations import Aspect, Deviation
from bftrainer.rehearsal.records import RunRecord

FIRST_STEPS = 2
"""What deviates so early does so without any change of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cause that explains a pattern, what shows it, and what to do."""

    run: str
    title: str
    remedy: str
    shown_by: Deviation


def explain(run: RunRecord, alone: RunRecord, found: Sequence[Deviation], launcher: str) -> list[Cause]:
    """The causes of a run's deviations, those first that explain others."""
    causes = list(_causes(run, alone, {each.aspect: each for each in reversed(found)}, launcher))
    files = {each.name: each for each in found if each.aspect == Aspect.FILES}
    causes += [cause for each in files.values() for cause in _of_file(run, each)]
    kept = next((each for each in found if each.aspect == Aspect.VARIABLES), None)
    variables: Sequence[str] = kept.facts["names"] if kept is not None else ()
    told = {cause.shown_by.aspect for cause in causes}
    rest = next((each for each in found if each.is_fault and each.aspect not in told), None)
    if not any(cause.shown_by.is_fault for cause in causes) and rest is not None:
        causes.append(_unknown(run, rest, variables))
    return causes


def _causes(run: RunRecord, alone: RunRecord, by: dict[Aspect, Deviation], launcher: str) -> Iterator[Cause]:
    if Aspect.END in by:
        yield _ended(run, by[Aspect.END])
        return
    if found := next((each for each in by.values() if "unseeded" in each.facts), None):
        yield _unseeded(run, found, launcher)
        return
    if Aspect.PROGRESS in by:
        yield _anew(run, by[Aspect.PROGRESS], launcher)
    if Aspect.RANKS in by and run.nodes + len(run.events) > 1:
        yield _ranks(run, by[Aspect.RANKS])
    samples, weights = by.get(Aspect.SAMPLES), by.get(Aspect.WEIGHTS)
    settings = by.get(Aspect.SETTINGS)
    if samples is not None and Aspect.STEPS not in by and _is_filled_up(samples):
        yield _filled_up(run, samples)
    elif Aspect.STEPS in by or (samples is not None and samples.facts["times"] > 1.5):
        yield from _shared_out(run, alone, by.get(Aspect.STEPS), samples, launcher)
    elif samples is not None and (weights is None or _not_after(samples, weights)):
        yield _other_samples(run, samples, launcher)
    elif settings is not None and (weights is None or _not_after(settings, weights)):
        yield _schedule(run, settings, weights, launcher)
    elif weights is not None and "final" not in weights.facts:
        yield _of_weights(run, weights, launcher)
    elif weights is not None or Aspect.STATE in by:
        yield _of_state(run, by.get(Aspect.WEIGHTS, by.get(Aspect.STATE)))  # type: ignore[arg-type]
    figure = by.get(Aspect.FIGURES)
    if figure is not None and figure.is_fault and weights is None and Aspect.STEPS not in by:
        yield _figure(run, figure, launcher)


def _not_after(one: Deviation, other: Deviation) -> bool:
    return (one.step or 0) <= (other.step or 0) or other.step is None


def _ended(run: RunRecord, found: Deviation) -> Cause:
    if run.trouble:
        return Cause(
            run=run.name,
            title="bftrainer could not follow the script, and no more was compared",
            remedy="please report it; `--keep FOLDER` keeps what was recorded",
            shown_by=found,
        )
    return Cause(
        run=run.name,
        title="it does not end well",
        remedy="mend the error that its last line names; `--keep FOLDER` keeps the workers' logs",
        shown_by=found,
    )


def _unseeded(run: RunRecord, found: Deviation, launcher: str) -> Cause:
    what = {
        "weights": "the first weights",
        "samples": "which samples there are, or their order",
        "steps": "something in the first step",
    }[found.facts["unseeded"]]
    return Cause(
        run=run.name,
        title=f"{what} follows from random numbers without a seed",
        remedy=(
            "every process draws its own, so that nodes have different splits, permutations or weights: "
            "call torch.manual_seed(...), and random.seed and numpy.random.seed where you use those, at the"
            " top of the script; give random_split and permutations a generator with a seed"
        ),
        shown_by=found,
    )


def _anew(run: RunRecord, found: Deviation, launcher: str) -> Cause:
    if launcher == "native":
        remedy = "use elastic.Run for the loop: it keeps the state in members' memory and in checkpoints"
    else:
        remedy = (
            "every change of nodes ends the processes of `launcher: torchrun`: save and load what the "
            "training needs, with job = elastic.attach(), job.load(), job.should_stop() and job.save(...), "
            "or with the callback of Lightning or Hugging Face (docs/torchrun.md)"
        )
    return Cause(run=run.name, title="its processes begin from nothing", remedy=remedy, shown_by=found)


def _ranks(run: RunRecord, found: Deviation) -> Cause:
    return Cause(
        run=run.name,
        title="the processes' weights are not the same",
        remedy=(
            "average gradients on all ranks (DistributedDataParallel, run.backward), change weights on all "
            "ranks alike, and step every optimizer after the same gradients"
        ),
        shown_by=found,
    )


def _shared_out(
    run: RunRecord, alone: RunRecord, steps: Deviation | None, samples: Deviation | None, launcher: str
) -> Iterator[Cause]:
    facts = samples.facts if samples is not None else {}
    shown = steps or samples
    assert shown is not None  # noqa: S101  one of them is there
    fewer = run.length < alone.length
    if facts.get("shared"):
        title = "every process trains on the same samples"
        remedy = "share them out: a DistributedSampler, accelerator.prepare(loader), or elastic.Run"
    elif facts.get("times", 1.0) > 1.5 or (fewer and steps is not None and steps.facts["ranks"] > 1):
        title = "every process takes a whole batch, so that there are fewer steps of more samples"
        remedy = (
            "divide the batch size by the number of processes, such as BATCH // accelerator.num_processes, "
            "or leave the batch to bftrainer (elastic.FixedGlobal, elastic.batch). Schedules that count "
            "steps end early as well, and accelerate steps a scheduler once for each process"
        )
    else:
        title = "it takes another number of steps"
        remedy = (
            "what ends the loop differs: a count or a best value that begins anew in a process that joins or "
            "is resumed (early stopping), or a length that follows from the number of processes. Keep such "
            "values in parts= of elastic.Run or in what the script saves"
        )
    yield Cause(run=run.name, title=title, remedy=remedy, shown_by=shown)


def _is_filled_up(found: Deviation) -> bool:
    """Whether the first step with other samples has all that it has on one process, and more of the data."""
    facts = found.facts
    adds = facts["common"] >= 1.0 and facts["times"] > 1.0 and facts["known"] >= 0.9
    return adds and not facts["shared"] and (found.step or 0) > 1


def _filled_up(run: RunRecord, found: Deviation) -> Cause:
    return Cause(
        run=run.name,
        title="the last step of an epoch is filled up with samples that the epoch has had",
        remedy=(
            "accelerate, Hugging Face and a DistributedSampler without drop_last do so where processes do "
            "not share an epoch evenly: leave samples out until a step's divide those of an epoch, or take "
            "another batch"
        ),
        shown_by=found,
    )


def _other_samples(run: RunRecord, found: Deviation, launcher: str) -> Cause:
    facts = found.facts
    if facts.get("shared"):
        title = "every process trains on the same samples"
        remedy = "share them out: a DistributedSampler, accelerator.prepare(loader), or elastic.Run"
    elif (found.step or 0) > FIRST_STEPS and facts["known"] >= 0.9:
        title = "after a change of nodes, or a resumption, it goes on with other samples"
        remedy = (
            "the place in the data is lost: let elastic.Run have the data set or loader, skip what the epoch "
            "has had (skip_first_batches, elastic.loader), and seed shuffling by the epoch"
        )
    elif facts["known"] < 0.9 and abs(facts["times"] - 1.0) < 0.01:
        title = "the samples are others: each process draws random numbers for them by itself"
        remedy = (
            "where the data set draws random numbers (augmentation), take torch's, numpy's or random's "
            "global ones, which the run seeds for each rank and step, not a generator with a fixed seed: on"
            " several nodes that gives all of them the same numbers. Where it is a split or a permutation, "
            "seed it alike on all nodes"
        )
    else:
        title = "the model gets other samples in a step: a second loader, or another order"
        remedy = (
            "a loader beside the run gives every process batches of its own: have the data set return what "
            "belongs together, or give the run both (a data set of pairs); seed the order alike on all nodes"
        )
    return Cause(run=run.name, title=title, remedy=remedy, shown_by=found)


def _schedule(run: RunRecord, found: Deviation, weights: Deviation | None, launcher: str) -> Cause:
    counters = _counters(weights)
    if (found.step or 0) <= FIRST_STEPS:
        title = f"{found.name} follows from the number of processes"
        remedy = "let it follow from the step over all nodes; with FixedPerNode(lr=...) it is no mistake"
    else:
        title = f"{found.name} begins anew in a process that joins or is resumed{counters}"
        remedy = (
            "give the scheduler to the run (scheduler=..., scheduler_every=...), or save and load its "
            "state; take run.position.step or run.position.epoch for counts, not enumerate or a counter of "
            "the script"
        )
    return Cause(run=run.name, title=title, remedy=remedy, shown_by=found)


def _counters(weights: Deviation | None) -> str:
    variables = weights.facts.get("variables", {}) if weights is not None else {}
    low = [
        f"{name} is {mine:g}, not {theirs:g}"
        for name, (mine, theirs) in variables.items()
        if _is_count(mine, theirs)
    ]
    return f": {', '.join(low[:3])}" if low else ""


def _is_count(mine: float, theirs: float) -> bool:
    """Whether a variable has begun again: it is nearer to its beginning than on one process."""
    return 0 <= mine < theirs


def _of_weights(run: RunRecord, found: Deviation, launcher: str) -> Cause:
    times, ranks, step = found.facts.get("factor"), found.facts.get("ranks", 1), found.step or 0
    if times is not None and ranks > 1 and abs(times * ranks - 1.0) < 0.1:
        return Cause(
            run=run.name,
            title=f"its gradients are {times:.3g} of those on one process: the loss is a sum over the batch, "
            "or a sum divided by a constant",
            remedy=(
                "each process has a share of the batch, and gradients are averaged: take the mean over the "
                "samples that are there, as with reduction='mean' or loss.sum() / len(x)"
            ),
            shown_by=found,
        )
    if times is not None:
        return Cause(
            run=run.name,
            title=f"its gradients are {times:.3g} times those on one process",
            remedy=(
                "a factor follows from the number of processes: gradients that are added up and not "
                "averaged, a loss multiplied by their number, or divided by a constant number of samples"
            ),
            shown_by=found,
        )
    if ranks > 1 and step <= FIRST_STEPS:
        return Cause(
            run=run.name,
            title="the same samples give another gradient when they are shared out",
            remedy=(
                "the loss compares the samples of a batch (contrastive, a norm over the batch), divides by "
                "something other than their number, or uses what each process draws or keeps by itself: see "
                "'Losses over the whole batch' in docs/your-script.md"
            ),
            shown_by=found,
        )
    return Cause(
        run=run.name,
        title=f"after a change of nodes, or a resumption, it trains on otherwise{_counters(found)}",
        remedy=(
            "the script keeps something that the loss or the update follows from (a counter, an average, a "
            "temperature, a model's attribute, an optimizer's own state), and it begins anew in a process "
            "that joins or is resumed: give it to elastic.Run as parts=, save it with the checkpoint, or "
            "let it follow from run.position.step"
        ),
        shown_by=found,
    )


def _of_state(run: RunRecord, found: Deviation) -> Cause:
    return Cause(
        run=run.name,
        title="the final state is another, though the steps were the same",
        remedy=(
            "something changes it beside the steps: code after the loop that is repeated or run by one rank "
            "alone, or a state of an optimizer or buffer that is not saved"
        ),
        shown_by=found,
    )


def _figure(run: RunRecord, found: Deviation, launcher: str) -> Cause:
    if run.nodes > 1 or any(facts.ranks > 1 for facts in run.steps.values()):
        title = f"{found.name} is the figure of one rank's share"
        remedy = (
            "the weights are the same and the figure is not: take run.evaluate(...), reduce it over all "
            "ranks (dist.all_reduce, accelerator.gather_for_metrics, sync_dist=True), or compute it on all "
            "samples; sums and counts of the loop's body have rank 0's samples only, since its process "
            "began"
        )
    else:
        title = f"{found.name} follows from something that begins anew when it is resumed"
        remedy = "keep what it is computed from in parts= of elastic.Run, or in what the script saves"
    return Cause(run=run.name, title=title, remedy=remedy, shown_by=found)


def _of_file(run: RunRecord, found: Deviation) -> Iterator[Cause]:
    facts = found.facts
    several = run.nodes > 1
    if facts.get("anew"):
        title = f"{found.name} is opened anew when a process begins: its first lines are gone"
        remedy = "open it with 'a' when the run goes on (run.position.step > 0), and let rank 0 alone write"
    elif facts.get("repeated") and several and not run.events:
        title = f"every process writes {found.name}"
        remedy = "let rank 0 alone write: `if run.rank == 0:` (accelerator.is_main_process)"
    elif facts.get("repeated"):
        title = f"{found.name} has lines twice: steps, or the code after the loop, were repeated after a loss"
        remedy = (
            "write a line's step with it, and let who reads the file take the last; or write anew and rename"
        )
    elif facts.get("extra"):
        title = "files that one process does not write"
        remedy = (
            "let rank 0 alone write, under names that follow from the step, not from the process or the time"
        )
    elif facts.get("missing"):
        title = f"{found.name} is not written"
        remedy = "what writes it runs on a process, or at a step, that did not come: let rank 0 write it"
    else:
        return
    yield Cause(run=run.name, title=title, remedy=remedy, shown_by=found)


def of_unused(found: Deviation) -> Cause:
    """The cause of an optimizer that never steps."""
    return Cause(
        run=found.run,
        title="an optimizer is made anew while the run steps the one that it was given",
        remedy=(
            "change the learning rate in the groups of the first one (group['lr'] = ...), or by a scheduler"
            " that the run has; for another kind of optimizer, submit a trainer of its own that begins from"
            " the weights"
        ),
        shown_by=found,
    )


def _unknown(run: RunRecord, found: Deviation, variables: Sequence[str]) -> Cause:
    is_file = found.aspect == Aspect.FILES
    named = f" ({', '.join(variables[:4])})" if variables else ""
    return Cause(
        run=run.name,
        title=f"{found.name or found.aspect.value} holds something that begins anew{named}, or is one rank's"
        if is_file or found.aspect == Aspect.FIGURES
        else f"{found.aspect.value} is not the same",
        remedy=(
            "weights and steps are the same, so it follows from what the script keeps by itself: counts, "
            "best values, averages of weights. Give these to elastic.Run as parts=, save them with the "
            "checkpoint, or take run.position; what is computed from one rank's samples needs run.evaluate "
            "or an all-reduce"
        ),
        shown_by=found,
    )
