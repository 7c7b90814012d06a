"""Messages on what a script gives to `elastic.Run`."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

DDP_IS_SET = Diagnostic(
    141,
    "ddp={{{name!r}: {value!r}}} cannot be set, as {why}",
    "Leave it out",
    "The run sets a few options of DDP itself, so that one wrapper lasts while nodes come and go.",
)
DDP_UNKNOWN = Diagnostic(
    142,
    "DistributedDataParallel has no option {name!r}",
    "Give options that this PyTorch has: {known}",
    "The mapping given as ddp= goes to DistributedDataParallel as keyword arguments.",
)
DDP_TOO_OLD = Diagnostic(
    143,
    "ddp needs PyTorch 2.7 or later, and this is {version}",
    "Leave ddp out, or update PyTorch",
    "Before 2.7, DDP exchanges data at once when it is made, and cannot be told not to.",
)
DDP_WRAPPED = Diagnostic(
    144,
    "the model is wrapped in DistributedDataParallel already",
    "Give the model itself and ddp=True: the run wraps it, as run.model",
    "The script's wrapper has a group of its own, which ends when a node is lost.",
)
DDP_NOT_AVERAGED = Diagnostic(
    145,
    "ddp was given with average=False, and ddp averages gradients",
    "Leave one of both out",
    "With average=False the script averages by itself, as in local SGD. DDP would average in each step.",
)
DDP_SEVERAL = Diagnostic(
    146,
    "ddp was given with several models or optimizers, and wraps one model with one optimizer",
    "Leave ddp out",
    "With several optimisers a part of the parameters has gradients at a time. The run averages these at "
    "run.step, without DDP.",
)
LEAST_PER_WORKER = Diagnostic(
    147,
    "least_per_worker={given} is not between 1 and batch_size",
    "Give 1 to {batch_size}",
    "A worker gets that many samples of a step, or none. It computes at most batch_size at once.",
)
SCHEDULER_EVERY = Diagnostic(
    148,
    "scheduler_every={every!r} is neither step nor epoch",
    'Give "step" or "epoch"',
    "It says after what the run steps the scheduler.",
)
SCHEDULER_CUT_SHORT = Diagnostic(
    149,
    "{scheduler} has a course of {course} steps, and this run takes {steps:.0f} on one node but "
    "{fewest:.0f} on all that its spec allows",
    'Give policy=elastic.FixedGlobal(...), or a scheduler that counts epochs with scheduler_every="epoch"',
    "By default a step has more samples on more nodes, so there are fewer steps and the course does not "
    "end. With FixedGlobal a step has as many samples on any number of nodes.",
)
SCHEDULER_COUNTS_STEPS = Diagnostic(
    150,
    "{scheduler} has a course of {course} steps and is stepped {epochs:.0f} times, once an epoch",
    'Say scheduler_every="step" if it counts steps',
    "The course would end far too late, at a learning rate that is hardly lower than at the beginning.",
)
SCHEDULER_COUNTS_EPOCHS = Diagnostic(
    151,
    "{scheduler} {ends}, and this run takes {steps:.0f} steps in {epochs:.0f} epochs",
    'If it counts epochs, give scheduler_every="epoch". If not, give scheduler_every="step", which is '
    "without this warning",
    "By default the run steps a scheduler after every step. One that was made for a call at the end of each "
    "epoch has then done its course early.",
)
NO_SCHEDULER = Diagnostic(
    152,
    "a {scheduler} was given as scheduler=, and has no step()",
    "Give a scheduler of torch.optim.lr_scheduler, or an object with step() and a state",
    "The run calls step() after every step or epoch.",
)
SCHEDULER_NEEDS = Diagnostic(
    153,
    "{scheduler}.step needs {needed}, which the run does not know",
    'Give it as parts={{"schedule": ...}} in place of scheduler=. Call its step in a function for '
    "run.after_epoch, with a figure of run.evaluate",
    "Such a scheduler follows a figure, as ReduceLROnPlateau does. run.evaluate gives the same one on all "
    "nodes: see [Learning rate](your-script.md#learning-rate).",
)
TWO_BATCH_SIZES = Diagnostic(
    154,
    "batch_size={batch_size} was given, and the DataLoader has {of_loader}",
    "Give one of both",
    "batch_size is what a node computes at once. The run takes it from the DataLoader where there is one.",
)
NO_INDEX = Diagnostic(
    155,
    "{data} has no samples by index",
    "Give a map-style data set, or an IterableDataset",
    "The run shares samples out by their index, with data[i] and len(data).",
)
NO_BATCH_SIZE = Diagnostic(
    156,
    "no batch_size was given, or one below 1: {given}",
    "Give batch_size, the samples that a node computes at once",
    "The run cuts batches itself, as a node's share changes with the number of nodes.",
)
NO_SAMPLES = Diagnostic(
    157,
    "the data set is empty",
    "Look whether its folder or file is there on every node",
    "A data set that lists a folder is empty where the folder is not mounted.",
)
ALL_DROPPED = Diagnostic(
    158,
    "drop_last leaves none of {samples} samples in batches of {batch_size}",
    "Take a smaller batch_size, or leave drop_last out",
    "An epoch is then made of whole batches alone.",
)
OWN_BATCHES = Diagnostic(
    159,
    "the DataLoader has a batch_sampler, or batch_size=None, and the run cuts batches itself",
    "Leave it out of the DataLoader, and give a batch_size",
    "The run uses each sample once an epoch, while a node's share of a step changes.",
)
OWN_SAMPLER = Diagnostic(
    160,
    "the DataLoader has a {sampler}, and the run shares samples out itself",
    "Leave sampler out of the DataLoader, and say shuffle=True or False. For weighted sampling, draw "
    "indices before the loop",
    "The run has to know which samples have been used when nodes come and go. See [Data that changes "
    "between epochs](your-script.md#data-that-changes-between-epochs).",
)
LR_RULE = Diagnostic(
    161,
    "there is no lr rule {rule!r}",
    "Give one of {known}, or a function",
    "The rule says what the learning rate is multiplied by where a step has more samples.",
)
WARMUP_STEPS = Diagnostic(
    162,
    "warmup_steps={steps} is below 0",
    "Give 0 or more",
    "Over that many steps the learning rate goes to what the new number of nodes asks for.",
)
LARGEST_BATCH = Diagnostic(
    163,
    "max={largest} is no largest batch for an initial one of {initial}",
    "Give at least {initial}, and at most {most:,}",
    "The batch grows from the initial one to the largest as training gains from it.",
)
LR_FACTOR = Diagnostic(
    164,
    "the lr rule gives {factor} for {where}",
    "Have it return a factor above 0 that is finite",
    "The learning rate is multiplied by it.",
)
TOO_SMALL = Diagnostic(
    165,
    "{what} of {size} samples is too small",
    "Give at least 1",
    "A step without samples trains nothing.",
)
ACCUMULATE_AND_POLICY = Diagnostic(
    166,
    "accumulate and policy were given together",
    "Leave accumulate out: with a policy, micro-batches follow from batch_size",
    "The policy says how many samples a step has, and batch_size how many a node computes at once.",
)
ACCUMULATE = Diagnostic(
    167,
    "accumulate={accumulate} is below 1",
    "Give at least 1 micro-batch a step",
    "A step has accumulate times batch_size samples on each node.",
)
STREAM_ENDED = Diagnostic(
    168,
    "the stream has no sample {sample} in epoch {epoch}, though training is there",
    "Have it give the same samples in the same order whenever it is read",
    "A node that joins or resumes reads the stream from the beginning of the epoch up to the place of "
    "training: see [Streams](your-script.md#streams).",
)
EPOCHS = Diagnostic(
    169,
    "epochs={epochs!r} is no whole number from 0 on",
    "Give one. For an end in between, write work: {{samples: N}} into the spec",
    "The run counts epochs from its beginning, also after a restart.",
)
NO_END = Diagnostic(
    170,
    "no epochs= is given, and the spec has no work: this run goes on until the script stops it",
    "Give elastic.Run(epochs=...), or call run.stop()",
    "Without either there is no progress to show, and nothing ends the trainer but cancelling it.",
)
WHICH_OPTIMIZER = Diagnostic(
    171,
    "the run has {asked}",
    "Say {calls}, and the same names for run.backward",
    "With several optimisers each call names the one that it is for.",
)
SYNC_BATCH_NORM = Diagnostic(
    172,
    "the model has SyncBatchNorm, whose forward pass exchanges statistics by itself",
    "Take BatchNorm or GroupNorm, or launcher: torchrun",
    "Where a node is lost in this exchange, or has no samples in a step, all others wait until one is taken "
    "for hung. See [Batch normalisation](your-script.md#batch-normalisation-batchnorm).",
)
NO_OPTIMIZER = Diagnostic(
    173,
    "{given} is no torch.optim.Optimizer",
    "Give elastic.Run the optimizer that it wraps, or derive it from torch.optim.Optimizer",
    "The run steps the optimiser, and sends its state to nodes that join. A wrapper hides both.",
)
STRANGE_PARAMETERS = Diagnostic(
    174,
    "the optimizer{name} steps {count} parameters that no model of the run has",
    'Give all models to elastic.Run, by name: {{"G": ..., "D": ...}}',
    "Nodes that join get the state of the run's models alone, and would have other values of these "
    "parameters.",
)
SCHEDULER_NAME = Diagnostic(
    175,
    "scheduler {name!r} has no optimizer of its name",
    "Name it as its optimizer: {known}",
    "Each scheduler is stepped with the optimiser of the same name.",
)
NAMES = Diagnostic(
    176,
    "{what}: the names {names} are no words",
    "Take words such as 'G' and 'D'",
    "Names stand in checkpoints, and in messages on what differs between nodes.",
)
LAZY_LAYERS = Diagnostic(
    177,
    "the model has lazy layers that have no weights yet",
    "Put one batch through it before elastic.Run, after a fixed seed: model(next(iter(loader))[0])",
    "The run compares, copies and averages weights from the first step on.",
)
SHARDED = Diagnostic(
    178,
    "this model is sharded over its processes (FSDP, DTensor), and elastic.Run has a whole copy on every "
    "node",
    "Write launcher: torchrun into the spec, and use elastic.attach() in place of elastic.Run. Save with "
    "torch.distributed.checkpoint",
    "Checkpoints of torch.distributed.checkpoint load on any number of nodes. See "
    "[torchrun](torchrun.md#a-sharded-model-fsdp2).",
)
OPTIMIZER_INIT = Diagnostic(
    179,
    "{optimizer}.__init__ does not call that of torch.optim.Optimizer",
    "Call super().__init__(params, defaults) in it",
    "PyTorch's own hooks on steps need what that call makes.",
)
CLOSURE = Diagnostic(
    180,
    "{optimizer} computes the loss several times a step, by a closure, and the run averages one gradient a "
    "step",
    "Take another optimizer, or launcher: torchrun with a closure that averages",
    "LBFGS looks for a step length by calling the closure. Each call would need an average over all nodes.",
)
ADAPTIVE_SEVERAL = Diagnostic(
    181,
    "elastic.Adaptive was given with several optimizers",
    "Take elastic.FixedGlobal or elastic.FixedPerNode",
    "Each optimiser's gradients have a noise of their own, so no batch is right for all.",
)
BATCH_STAYS = Diagnostic(
    182,
    "the batch stays at {batch} samples: {why}",
    "Nothing, if it happens once. Else give a fixed batch",
    "A batch that adapts is chosen by a model of measured times and noise, which failed here.",
)
