"""Causes that `bftrainer try` finds for what differs under joins, losses and stops."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

NOT_FOLLOWED = Diagnostic(
    701,
    "bftrainer could not follow the script, and no more was compared",
    "Please report it: `--keep FOLDER` keeps what was recorded",
    "What a script does is recorded as it runs. Something in it stood in the way.",
)
ENDS_BADLY = Diagnostic(
    702,
    "it does not end well",
    "Mend the error that its last line names: `--keep FOLDER` keeps the workers' logs",
    "Nothing is compared with a run that has failed.",
)
UNSEEDED = Diagnostic(
    703,
    "{what} follows from random numbers without a seed",
    "Call torch.manual_seed(...) at the top of the script, and random.seed and numpy.random.seed where you "
    "use those. Give random_split and permutations a generator with a seed",
    "Every process draws its own numbers, so that nodes have different splits, permutations or weights.",
)
FROM_NOTHING = Diagnostic(
    704,
    "its processes begin from nothing",
    "Use elastic.Run for the loop",
    "elastic.Run keeps the state in members' memory and in checkpoints.",
)
NOT_RESUMED = Diagnostic(
    705,
    "its processes begin from nothing after each change of nodes",
    "Save and load what the training needs, with job = elastic.attach(), job.load(), job.should_stop() and "
    "job.save(...). Or use the callback of Lightning or Hugging Face",
    "Every change of nodes ends the processes of `launcher: torchrun`. See [torchrun](torchrun.md).",
)
RANKS_DIFFER = Diagnostic(
    706,
    "the processes' weights are not the same",
    "Average gradients on all ranks (DistributedDataParallel, run.backward), change weights on all ranks "
    "alike, and step every optimizer after the same gradients",
    "Only one rank's weights are kept in the end, so what the others learn is lost.",
)
SAME_SAMPLES = Diagnostic(
    707,
    "every process trains on the same samples",
    "Share them out: a DistributedSampler, accelerator.prepare(loader), or elastic.Run",
    "More nodes then compute the same gradients again, and nothing is gained.",
)
WHOLE_BATCHES = Diagnostic(
    708,
    "every process takes a whole batch, so that there are fewer steps of more samples",
    "Divide the batch size by the number of processes, such as BATCH // accelerator.num_processes, or leave "
    "the batch to bftrainer (elastic.FixedGlobal, elastic.batch)",
    "A schedule that counts steps stops before its end. accelerate's prepared schedulers step once for each "
    "process.",
)
OTHER_STEPS = Diagnostic(
    709,
    "it takes another number of steps",
    "Keep what ends the loop in parts= of elastic.Run, or in what the script saves",
    "A count or a best value begins anew in a process that joins or is resumed, as in early stopping. Or a "
    "length follows from the number of processes.",
)
FILLED_UP = Diagnostic(
    710,
    "the last step of an epoch is filled up with samples that the epoch has had",
    "Leave samples out until a step's divide those of an epoch, or take another batch",
    "accelerate, Hugging Face and a DistributedSampler without drop_last do so where processes do not share "
    "an epoch evenly.",
)
OTHER_PLACE = Diagnostic(
    711,
    "after a change of nodes, or a resumption, it goes on with other samples",
    "Let elastic.Run have the data set or loader. Or skip what the epoch has had (skip_first_batches, "
    "elastic.loader), and seed shuffling by the epoch",
    "The place in the data is lost when a process begins anew.",
)
OWN_NUMBERS = Diagnostic(
    712,
    "the samples are others: each process draws random numbers for them by itself",
    "For augmentation take the global generators of torch, numpy or random. Seed a split or a permutation "
    "alike on all nodes",
    "The run seeds the global generators for each rank and step. A generator with a fixed seed gives all "
    "nodes the same numbers.",
)
SECOND_LOADER = Diagnostic(
    713,
    "the model gets other samples in a step: a second loader, or another order",
    "Have the data set return what belongs together, or give the run both (a data set of pairs). Seed the "
    "order alike on all nodes",
    "A loader beside the run gives every process batches of its own. See [A second "
    "loader](your-script.md#a-second-loader).",
)
FOLLOWS_COUNT = Diagnostic(
    714,
    "{name} follows from the number of processes",
    "Let it follow from the step over all nodes. With FixedPerNode(lr=...) it is no mistake",
    "What comes out then depends on how many nodes there were.",
)
SCHEDULE_ANEW = Diagnostic(
    715,
    "{name} begins anew in a process that joins or is resumed{counts}",
    "Give the scheduler to the run (scheduler=..., scheduler_every=...), or save and load its state. Take "
    "run.position.step or run.position.epoch for counts, not enumerate or a counter of the script",
    "The run hands over the schedulers that it was given, and nothing else: see [Learning "
    "rate](your-script.md#learning-rate).",
)
LOSS_IS_SUM = Diagnostic(
    716,
    "its gradients are {times:.3g} of those on one process: the loss is a sum over the batch, or a sum "
    "divided by a constant",
    "Take the mean over the samples that are there, as with reduction='mean' or loss.sum() / len(x)",
    "Each process has a share of the batch, and gradients are averaged.",
)
FACTOR = Diagnostic(
    717,
    "its gradients are {times:.3g} times those on one process",
    "Average gradients in place of adding them up, and divide the loss by the samples that are there",
    "A factor follows from the number of processes: a loss multiplied by their number, or divided by a "
    "constant number of samples.",
)
WHOLE_BATCH_LOSS = Diagnostic(
    718,
    "the same samples give another gradient when they are shared out",
    "If the loss has weights of classes or leaves labels out, take reduction='none' and divide the sum by "
    "the number of samples. If it compares samples, keep the trainer to one number of nodes, or gather them",
    "The loss compares the samples of a batch, divides by something other than their number, or uses what "
    "each process keeps. See [Losses over the whole batch](your-script.md#losses-over-the-whole-batch).",
)
KEPT_BY_SCRIPT = Diagnostic(
    719,
    "after a change of nodes, or a resumption, it trains on otherwise{counts}",
    "Give what the loss or the update follows from to elastic.Run as parts=, save it with the checkpoint, "
    "or let it follow from run.position.step",
    "The script keeps a counter, an average, a temperature or a state of its own, which begins anew in a "
    "process that joins or is resumed.",
)
OTHER_END = Diagnostic(
    720,
    "the final state is another, though the steps were the same",
    "Look at the code after the loop, which may be repeated or run by one rank alone, and at states that "
    "are not saved",
    "Something changes the state beside the steps.",
)
ONE_RANKS_FIGURE = Diagnostic(
    721,
    "{name} is the figure of one rank's share",
    "Take run.evaluate(...), reduce it over all ranks (dist.all_reduce, accelerator.gather_for_metrics, "
    "sync_dist=True), or compute it on all samples",
    "The weights are the same and the figure is not. Sums of the loop's body have rank 0's samples only, "
    "since its process began.",
)
FIGURE_ANEW = Diagnostic(
    722,
    "{name} follows from something that begins anew when it is resumed",
    "Keep what it is computed from in parts= of elastic.Run, or in what the script saves",
    "The weights are the same and the figure is not.",
)
FILE_ANEW = Diagnostic(
    723,
    "{name} is opened anew when a process begins: its first lines are gone",
    "Open it with 'a' when the run goes on (run.position.step > 0), and let rank 0 alone write",
    "The script runs from its first line at every start.",
)
ALL_WRITE = Diagnostic(
    724,
    "every process writes {name}",
    "Let rank 0 alone write: `if run.rank == 0:` (accelerator.is_main_process)",
    "Processes on several nodes overwrite each other, or write each line several times.",
)
LINES_TWICE = Diagnostic(
    725,
    "{name} has lines twice: steps, or the code after the loop, were repeated after a loss",
    "Write a line's step with it, and let who reads the file take the last. Or write anew and rename",
    "After a loss of all nodes, steps since the last checkpoint come again.",
)
OTHER_FILES = Diagnostic(
    726,
    "files that one process does not write",
    "Let rank 0 alone write, under names that follow from the step, not from the process or the time",
    "Names that follow from a process or the time are others after each start.",
)
NOT_WRITTEN = Diagnostic(
    727,
    "{name} is not written",
    "Let rank 0 write it",
    "What writes it runs on a process, or at a step, that did not come.",
)
OPTIMIZER_ANEW = Diagnostic(
    728,
    "an optimizer is made anew while the run steps the one that it was given",
    "Change the learning rate in the groups of the first one (group['lr'] = ...), or by a scheduler that "
    "the run has. For another kind of optimizer, submit a trainer that begins from the weights",
    "The new optimizer never steps.",
)
BEGINS_ANEW = Diagnostic(
    729,
    "{name} holds something that begins anew{named}, or is one rank's",
    "Give counts, best values and averages to elastic.Run as parts=, save them with the checkpoint, or take "
    "run.position. What is computed from one rank's samples needs run.evaluate or an all-reduce",
    "Weights and steps are the same, so it follows from what the script keeps by itself.",
)
NOT_SAME = Diagnostic(
    730,
    "{name} is not the same",
    "Give what the script keeps to elastic.Run as parts=, save it with the checkpoint, or take run.position",
    "Weights and steps are the same, so it follows from what the script keeps by itself.",
)
NO_NODES_HERE = Diagnostic(
    731,
    "{who} {why}",
    "Try again, on a machine with less to do",
    "The command starts a daemon of its own on this machine, with its trainers, and ends it afterwards.",
)
RUN_FAILED = Diagnostic(
    732,
    "{run}: {status}: {reason}",
    "Mend what the reason names, and try again",
    "Costs are measured by whole runs of the script. One of them has failed.",
)
TOO_FEW_STEPS = Diagnostic(
    733,
    "{run}: the script ends after {last} steps, and {steps} were wanted",
    "Give fewer with --steps, or let the script train for longer",
    "The first steps are left out of a measurement, and enough others have to be left.",
)
NOTHING_PARTIAL = Diagnostic(
    734,
    "no step of {steps} was partial",
    "Take more steps, or less warm-up",
    "The first steps compute whole gradients, as the spec's `partial` says.",
)
