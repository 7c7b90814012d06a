"""Messages to scripts with Lightning's Trainer."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

FINDER = Diagnostic(
    401,
    "{finder} would train for itself after every start, each time to another end",
    "Find the value beforehand, by a script of its own, and give it to this one",
    "A script begins anew whenever nodes change.",
)
LOADER_OPTIONS = Diagnostic(
    402,
    "elastic.loader takes no {options}, as the nodes share the data in an order of the run's own",
    "Leave {options} out",
    "The run cuts batches so that a step has the same samples on any number of nodes.",
)
NO_LENGTH = Diagnostic(
    403,
    "{data} has no length, and under Lightning the nodes share a map-style data set",
    "For a stream, take elastic.Run, or Hugging Face's Trainer",
    "Lightning goes on within an epoch by a count of batches.",
)
TOO_FEW_STEPS = Diagnostic(
    404,
    "{samples} samples are not enough for two steps of {batch}",
    "Take a smaller batch",
    "A run goes on within an epoch, so an epoch needs at least two steps.",
)
ARGUMENTS = Diagnostic(
    405,
    "the Trainer lacks the callback's arguments, or has others: {names}",
    "Say Trainer(**elastic.arguments(), ...)",
    "They say how many nodes and processes there are, and that Lightning shares no samples out by itself.",
)
VALIDATION_COUNTS = Diagnostic(
    406,
    "val_check_interval={interval} counts micro-batches, and a step has fewer on more nodes",
    "Give it as a part of an epoch, such as 0.5, or leave at_most out",
    "The validation would come after another step on another number of nodes.",
)
FREQUENCY_COUNTS = Diagnostic(
    407,
    'a scheduler with interval "step" has frequency {frequency}, which counts micro-batches',
    "Give it frequency 1 and a schedule for each step, or leave at_most out",
    "A step has fewer micro-batches on more nodes, so the scheduler would be stepped at other times.",
)
MADE_NARROW = Diagnostic(
    408,
    '{name} is made in float32, and Trainer(precision="64-true") converts it after it has been restored',
    "Make the module in float64 at once, such as by torch.set_default_dtype(torch.float64)",
    "Weights would be rounded anew at every start.",
)
STRANGE_CALLBACK = Diagnostic(
    409,
    "{callback} is not known to go on where it was after a change of nodes",
    "Compare a run with one by hand before you rely on it",
    "A callback of Lightning keeps its state in checkpoints only where it was written to.",
)
AFTER_BACKWARD = Diagnostic(
    410,
    "on_after_backward of {names} is called for each micro-batch, with gradients that are not averaged yet",
    "Do it in on_before_optimizer_step, or clip by the Trainer's gradient_clip_val",
    "What it does to these gradients depends on the number of nodes.",
)
PART_OF_EPOCH = Diagnostic(
    411,
    "{names}: of epoch {epoch}, only what came after its step {step} counts",
    "Log numbers in place of metrics of torchmetrics, or follow figures of the validation",
    "The run went on within this epoch, and Lightning's checkpoints lack what such a metric has counted.",
)
COUNTS_BY_ITSELF = Diagnostic(
    412,
    "{name} counts by itself, and no checkpoint has what all ranks have counted",
    "Log the metric itself (self.log), or sum over all ranks in a buffer of the module",
    "A checkpoint lacks the count or, by persistent(True), has what rank 0 has counted.",
)
AT_EVERY_START = Diagnostic(
    413,
    "{hook} is called at every start: what it resets, such as a metric or an average, begins anew",
    "Do that in __init__",
    "A script starts again whenever nodes change.",
)
NO_EPOCH_START = Diagnostic(
    414,
    "{hook} is not called for the rest of epoch {epoch}, which goes on after a change of nodes",
    "Do what follows from the epoch in on_train_start, too",
    "Lightning calls it where an epoch begins alone.",
)
SCHEDULE_LENGTH = Diagnostic(
    415,
    "{scheduler} is made for {length} steps, and the training has {steps}",
    "Take self.trainer.estimated_stepping_batches in place of len(loader)",
    "len(loader) counts this node's micro-batches, of which there are fewer on more nodes.",
)
VALIDATION_PART = Diagnostic(
    416,
    "val_check_interval={part} of {steps} steps is no whole number of steps",
    "Give a part of which an epoch has whole steps, such as {whole}/{steps}",
    "On another number of nodes the validation comes after another step.",
)
UNUSED = Diagnostic(
    417,
    "gradients were not averaged over the nodes, as {count} parameters got none ({names})",
    'Freeze them (requires_grad_(False)), or say Trainer(strategy="ddp_find_unused_parameters_true", '
    "**elastic.arguments())",
    "DistributedDataParallel waits for a gradient of every parameter, unless it is told of unused ones.",
)
OTHER_FOLDER = Diagnostic(
    418,
    "ModelCheckpoint writes to {folder}, which is another folder after every start",
    'Give it a dirpath that stays, such as job.checkpoint_dir / "best" with job = elastic.attach()',
    "The best score begins anew in a new folder.",
)
SAVE_LAST = Diagnostic(
    419,
    "ModelCheckpoint(save_last=True) keeps an old last.ckpt where all nodes are lost, and the newest is "
    "last-v1.ckpt",
    "Give it a dirpath in job.checkpoint_dir, where that is seen to, or enable_version_counter=False",
    "Lightning does not overwrite a file of an earlier process, but counts versions.",
)
RESUME = Diagnostic(
    420,
    "there is {checkpoint} to go on from",
    "Say trainer.fit(..., ckpt_path=elastic.checkpoint)",
    "Else the training would begin anew after every change of nodes.",
)
SKIPS_EPOCH = Diagnostic(
    421,
    "the checkpoint was written after all of {epochs} epochs, and with max_steps Lightning would leave an "
    "epoch's samples out",
    "Give max_epochs alone",
    "Lightning counts the epoch as begun, and goes on with the next one.",
)
LIMITED = Diagnostic(
    422,
    "limit_train_batches or overfit_batches was given, and a run goes on within an epoch, which has all its "
    "steps then",
    "Leave limit_train_batches and overfit_batches out, and give elastic.loader fewer samples",
    "They count this node's batches, of which there are fewer on more nodes.",
)
RELOADS = Diagnostic(
    423,
    "reload_dataloaders_every_n_epochs was given, and a loader that is made anew begins an epoch anew",
    "Leave reload_dataloaders_every_n_epochs out",
    "A run goes on within an epoch.",
)
PRUNING = Diagnostic(
    424,
    "Lightning does not restore the masks of ModelPruning",
    "Prune when the training is done, or in a training of its own, by hand",
    "Pruned weights would come back after a change of nodes.",
)
STOCHASTIC_AVERAGING = Diagnostic(
    425,
    "Lightning does not restore StochasticWeightAveraging",
    "Take WeightAveraging or EMAWeightAveraging, which it restores",
    "Its learning rates and averages would be others after a change of nodes.",
)
OTHER_BATCH = Diagnostic(
    426,
    "the checkpoint was written with {before} samples a step, and this run has {now}",
    "Keep the batch, or begin anew in another folder",
    "The place in an epoch is counted in steps.",
)
OWN_LOADER = Diagnostic(
    427,
    "the training's data is a DataLoader of the script's own, or several",
    "Take one elastic.loader(data) for it",
    "The nodes share the samples of a step in the order of that loader.",
)
WEIGHTS_APART = Diagnostic(
    428,
    "the ranks do not have the same weights any more: {difference}",
    "In training_step, say self.manual_backward(loss) and never loss.backward() or torch.autograd.grad. "
    "Give every optimiser in configure_optimizers, and change weights by nothing that is a rank's own",
    "Only gradients of manual_backward are averaged. Without an average each rank trains a model of its own.",
)
NOT_RESTORED = Diagnostic(
    429,
    "{name} is not what the checkpoint has: on_fit_start or on_train_start of the module or of a callback "
    "changes it",
    "Do that in __init__, or only where self.trainer.ckpt_path is None",
    "These functions are called again after every change of nodes, and what was trained is lost.",
)
CLOSURE = Diagnostic(
    430,
    "{optimizer} computes the loss several times a step, and each rank and micro-batch has a loss of its own",
    "Take another optimizer, or step it in manual optimization, with a closure that averages the loss over "
    "all ranks",
    "Lightning gives it the last micro-batch of this rank alone, so ranks would take different steps.",
)
OWN_CALLBACK = Diagnostic(
    431,
    "a callback of the script keeps what changes while it trains, and no checkpoint has it: {names}",
    "Return it in the callback's state_dict(), and take it back in load_state_dict()",
    "Every change of nodes begins new processes, in which it begins anew. See "
    "[What goes on](lightning.md#what-goes-on-after-a-change-of-nodes).",
)
