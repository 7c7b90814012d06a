"""Messages to scripts on torchrun or Horovod, with whatever library they train."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

RANKS_DATA = Diagnostic(
    201,
    "the ranks do not have the same training data, as if each had drawn a split of its own",
    "Give what draws a split or an order a seed, as in random_split(..., "
    "generator=torch.Generator().manual_seed(0)). Sort what glob or os.listdir return",
    "Samples come more than once and others never. A validation may have samples that were trained on.",
)
DATA_CHANGED = Diagnostic(
    202,
    "the training data is not that with which the training began: {difference}",
    "Give what draws a split or an order a seed, as in random_split(..., "
    "generator=torch.Generator().manual_seed(0)). All is well if you have changed the data on purpose",
    "After every start a split without a seed is another one. A validation then has samples that were "
    "trained on.",
)
RANKS_APART = Diagnostic(
    203,
    "the ranks do not train one model: parameter {parameter} of {optimizer} is {mine:.6g} on rank 0, "
    "{theirs:.6g} on rank {rank} after {steps} steps, the same after none of {compared}",
    "Wrap the model in DistributedDataParallel, accelerator.prepare, or Horovod's DistributedOptimizer. "
    "Where ranks may differ, call job.compare()",
    "Without an average of gradients each rank trains a model of its own, and rank 0's is what counts. If "
    "the script averages weights at times, the warning is taken back when it does.",
)
WHOLE_DATA = Diagnostic(
    204,
    "each of the {size} ranks reads all training data by itself",
    "Give the loader sampler=DistributedSampler(...), and call its set_epoch(epoch). With accelerate, give "
    "the loader to accelerator.prepare, as the model",
    "An epoch then has each sample once for every rank. Without shuffling all ranks have the same batches.",
)
EPOCH_FILLED_UP = Diagnostic(
    205,
    "the last step of each epoch has {left} samples, not {total}: {done}",
    "Leave {left} of the {length} samples out, or take a batch that divides them",
    "What is trained depends on the number of ranks, as the filled-up samples, or those of small steps, "
    "weigh more.",
)
EPOCH_NOT_EVEN = Diagnostic(
    206,
    "an epoch of {length} samples is no multiple of {ranks} ranks: DistributedSampler takes {twice} of them "
    "twice",
    "Leave {left} of them out, or narrow nodes in the spec",
    "What is trained depends on the number of ranks, as the samples that come twice weigh more.",
)
OTHER_COUNT = Diagnostic(
    207,
    "this run has {size} processes, but {who}: each would train by itself, on all samples",
    "Call torch.distributed.init_process_group() before the first step, with RANK, WORLD_SIZE, MASTER_ADDR "
    "and MASTER_PORT as they are. Or say nodes: {{min: 1, max: 1, workers: 1}} for work on one process",
    "The script forms no group of all its processes. Every start would end the same, so the trainer fails.",
)
OTHER_STEP = Diagnostic(
    208,
    "this rank resumes from step {step}, others from {lowest} to {highest}",
    "Start again, and look whether all nodes see the same files in the checkpoint folder",
    "A shared file system that caches folders shows a new file on some nodes later than on others.",
)
TOO_LONG = Diagnostic(
    209,
    "a rank's value has {size} bytes, and at most {most} are exchanged",
    "Exchange numbers and short texts alone",
    "Such values go from each rank to all others at once.",
)
NOT_SAVED = Diagnostic(
    210,
    "the state cannot be read back as a checkpoint: {why}",
    "Save tensors, numbers, texts, lists and dictionaries alone",
    "Checkpoints are loaded without running code that is in them, so objects of other classes are refused.",
)
SECOND_TRAINING = Diagnostic(
    211,
    "this script begins a second training, which would go on from the checkpoints of the first",
    "Make a trainer of each, with a spec of its own, such as `command: [python, train.py, --fold, '2']`. "
    "Evaluations may follow a training",
    "A trainer has one folder of checkpoints. The second training would find itself done, and train nothing.",
)
WEIGHTS_APART = Diagnostic(
    212,
    "the ranks do not have the same weights any more: {difference}",
    "Train with DistributedDataParallel, or average gradients (torch.distributed.all_reduce) before "
    "optimizer.step()",
    "Gradients are not averaged, or something changes weights on each rank by itself.",
)
BUFFER_APART = Diagnostic(
    213,
    "a buffer follows each rank's own samples: {difference}",
    "Sum or average what it follows over all ranks (torch.distributed.all_reduce) where you change it",
    "Rank 0's buffer is what checkpoints have, so what comes out depends on the number of nodes.",
)
UNEVEN_NOW = Diagnostic(
    214,
    "a global batch of {total} cannot be shared out evenly between {size} nodes",
    "Set nodes in the spec so that every number of them divides the batch",
    "Each rank has as many samples of a step as the others, as these libraries average over ranks and not "
    "over samples.",
)
UNEVEN = Diagnostic(
    215,
    "a global batch of {total} cannot be shared out evenly between {odd} nodes, and the spec allows {sizes}",
    "Set nodes in the spec so that every number of them divides the batch{other}",
    "Each rank has as many samples of a step as the others, as these libraries average over ranks and not "
    "over samples.",
)
FROZEN_LATER = Diagnostic(
    216,
    "{first} and {more} more parameters or layers were frozen or unfrozen while the script trains",
    "Make a trainer of each phase, which begins with the weights of the one before",
    "After a restart they would be as at the beginning, and gradients of other nodes are not averaged.",
)
CHECKPOINT_LACKS = Diagnostic(
    217,
    "the checkpoint lacks {count} of {all} weights under the names that the model has, such as {name}",
    "Take another version of transformers, or another model",
    "After a change of nodes these weights would begin anew. Some versions of transformers save some models "
    "so that they cannot go on.",
)
ROUNDED = Diagnostic(
    218,
    "{name} is what the checkpoint has, rounded to {narrow}: the model is made in that, and converted to "
    "{wide} after it has been restored",
    "Make it in {wide} at once, such as by torch.set_default_dtype({wide})",
    "Weights would be rounded anew at every change of nodes.",
)
GRADIENTS_WAIT = Diagnostic(
    220,
    "for {batches} batches some optimizer had gradients that its step had not taken",
    "Step it, or set them to zero, at the end of some batch",
    "A change of nodes waits for a moment without such gradients. Now nodes change all the same, and these "
    "gradients are lost.",
)
DATA_READ_EARLY = Diagnostic(
    221,
    "the training's data was read before the checkpoint",
    "With this strategy of Lightning, compute the number of steps without trainer.estimated_stepping_batches",
    "Asking for that number begins the loader, whose first batches are then those of another place in the "
    "epoch.",
)
HOROVOD_EARLY = Diagnostic(
    222,
    "hvd.init() was called before elastic.attach()",
    "Call elastic.attach() before hvd.init()",
    "Rank and size come from it.",
)
NO_INTERFACE = Diagnostic(
    223,
    "no network interface has address {address}",
    "Set HOROVOD_GLOO_IFACE in the spec's env",
    "Horovod asks for the name of the interface that the other workers reach.",
)
NO_DRIVER = Diagnostic(
    224,
    "the Horovod driver at {at} gives no place: {why}",
    "Look into the log of the trainer's driver, which show names",
    "Each worker asks the driver for its rank. It does not answer where it has ended, or where a firewall "
    "stands between.",
)
ACCELERATE_COUNTS = Diagnostic(
    225,
    "this run has {size} processes, but {who}: each would train by itself, on all samples",
    "Where there are no GPUs, say TrainingArguments(use_cpu=True) or Accelerator(cpu=True), before anything "
    "else asks accelerate for its state",
    "On nodes without GPUs accelerate takes no notice of RANK and WORLD_SIZE, unless it is told to use the "
    "CPU. Every start would end the same, so the trainer fails.",
)
LIGHTNING_COUNTS = Diagnostic(
    226,
    "this run has {size} processes, but {who}: each would train by itself, on all samples",
    "Say Trainer(**elastic.arguments(), ...), and give no strategy of one device",
    "The callback's arguments tell Lightning how many nodes and processes there are. Every start would end "
    "the same, so the trainer fails.",
)
NO_COUNT = Diagnostic(
    227,
    "{name}={value!r} is no count",
    "Give whole numbers from 0 on: steps, samples over all nodes, and the number of the epoch",
    "They are what `list` and `show` tell, and what the spec's work is counted by.",
)
COUNTS_BACK = Diagnostic(
    228,
    "the script's count of {name} goes back, from {before} to {now}",
    "Count them over all epochs, over all nodes and on from what was loaded",
    "Samples that begin anew in each epoch never reach the spec's work, and `list` says that there is no "
    "progress. Speeds are measured only where they go up. Steps tell what a change of nodes has lost.",
)
NORM_SHARES = Diagnostic(
    229,
    "the model's batch normalisation sees {few} samples at once on {fewest} ranks, and {many} on {most}",
    "{cure}. Or take GroupNorm or LayerNorm, or one number of nodes",
    "It compares the samples that a rank computes at once, so that other weights come out on other numbers "
    "of nodes. Of a single sample it has nothing to compare, and may end the script. See "
    "[Batch normalisation](your-script.md#batch-normalisation-batchnorm).",
)
STRANGERS_CHECKPOINTS = Diagnostic(
    263,
    "strangers can put files among the checkpoints in {folder}: {why}",
    "Name a folder of your own as checkpoint.dir, such as one below it",
    "Lightning and Hugging Face read and write checkpoints by their names. A stranger's link there has them "
    "write over any file of yours, and a stranger's checkpoint may run any command as you.",
)
SKIPS_TOO_FEW = Diagnostic(
    264,
    "with dispatch_batches a step takes a batch of the loader for each of the {ranks} ranks, and "
    "skip_first_batches leaves {skipped} of the loader out",
    "Leave dispatch_batches out of accelerate's DataLoaderConfiguration. With skip_first_batches(loader, n) "
    "the training then goes on after n steps",
    "Some samples of the epoch come twice, and so others never.",
)
