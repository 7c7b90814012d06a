"""Messages to scripts with Hugging Face's Trainer."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

OWN_LOADER = Diagnostic(
    301,
    "get_train_dataloader returns a DataLoader of the script's own, of which every node would take all "
    "samples",
    "Return self.accelerator.prepare(loader), with args.train_batch_size as its batch_size",
    "accelerate shares the samples out in the loader that it prepares.",
)
DROP_LAST = Diagnostic(
    302,
    "with dataloader_drop_last the number of steps in {length} samples depends on the number of nodes",
    "Leave it out, or leave {left} samples out yourself",
    "Each node drops what is left of its own share, and a training goes on by a count of steps.",
)
OUT_OF_ORDER = Diagnostic(
    303,
    "without dataloader_in_order batches come as they are ready",
    "Leave it out",
    "A training goes on after the batches that came first in order. Others would come twice, or never.",
)
DISPATCH = Diagnostic(
    304,
    "with dispatch_batches accelerate goes on within an epoch with other samples",
    "Leave it out of accelerator_config",
    "It leaves out too few batches, of the first epoch's order.",
)
NOT_EVEN = Diagnostic(
    305,
    "without even_batches the last step of {length} samples has other numbers of them on each node",
    "Leave it out of accelerator_config, or leave {left} samples out yourself",
    "They weigh differently, and nodes that have none wait for ever.",
)
NO_SET_EPOCH = Diagnostic(
    306,
    "{sampler} has no set_epoch, so it draws another order after every start",
    "Give it set_epoch(epoch), from which alone its order follows",
    "A training goes on within an epoch, and needs the order that the epoch began with.",
)
FILLED_UP = Diagnostic(
    307,
    "the last step of each epoch has {left} samples, not {batch}, and Hugging Face fills it up on several "
    "nodes",
    "Leave {left} of the {length} samples out, or take a batch that divides them",
    "It takes samples that the epoch has had, so that what is trained depends on the number of nodes.",
)
STREAM_WORKERS = Diagnostic(
    308,
    "several worker processes read a stream in turns of a batch, whose size depends on the number of nodes",
    "Give dataloader_num_workers 1 or 0",
    "The order of samples would depend on the number of nodes, too.",
)
STREAM_PERSISTS = Diagnostic(
    309,
    "worker processes that persist never learn a stream's next epoch",
    "Leave dataloader_persistent_workers out",
    "They would until a start makes new ones, so the order depends on when nodes change.",
)
STREAM_SHARDS = Diagnostic(
    310,
    "with dispatch_batches=False each node reads shards of its own of this stream",
    "Leave it out of accelerator_config",
    "The order of samples would depend on the number of nodes.",
)
GROUPED = Diagnostic(
    311,
    "samples in groups of a length come in another order on another number of nodes",
    "Leave group_by_length, or train_sampling_strategy, out of TrainingArguments",
    "A training goes on at a place in the order, which has to be the same on any number of nodes.",
)
SPLIT_BATCHES = Diagnostic(
    312,
    "with split_batches each node has a part of per_device_train_batch_size",
    "Leave it out of accelerator_config: elastic.batch(...) gives each node its part",
    "The part would be cut twice.",
)
SAVES_TOO_LITTLE = Diagnostic(
    313,
    "save_only_model or save_total_limit=1 was given, and a training goes on from whole checkpoints",
    "Leave save_only_model out, and give save_total_limit 2 or more",
    "A checkpoint may be incomplete when nodes are lost. Then the one before it is what is left.",
)
GOES_ON_ELSEWHERE = Diagnostic(
    314,
    "ignore_data_skip or auto_find_batch_size was given, and a training goes on at the sample where it was",
    "Leave ignore_data_skip and auto_find_batch_size out",
    "The first begins the epoch anew after every change of nodes. The second may find another batch on each "
    "node.",
)
TOKENS_APART = Diagnostic(
    315,
    "with average_tokens_across_devices=False each node's items weigh by that node's share",
    "Leave it out",
    "Steps would depend on the number of nodes.",
)
STREAM_DRAWS = Diagnostic(
    316,
    "the first samples of this stream are others each time it is read",
    "Draw the order from a seed and the epoch alone, which set_epoch(epoch) tells the data set. If only "
    "what is done to each sample is drawn, such as a random crop, all is well",
    "If __iter__ draws the order, every start within an epoch uses samples twice, and others never.",
)
STREAM_ENDED = Diagnostic(
    317,
    "the stream of training data ended after step {step} of {most}",
    "Give the data set a length (__len__), or have its __iter__ begin again by itself",
    "Hugging Face cannot go on within the second pass of a stream.",
)
OTHER_BATCHES = Diagnostic(
    318,
    "a step has {batch} samples on {size} nodes, and would have others on other numbers of nodes",
    "Say TrainingArguments(**elastic.batch({batch}), ...) and give no other batch size",
    "Hugging Face counts epochs by steps, and would count them wrongly.",
)
NOT_IN_TRAINER = Diagnostic(
    319,
    "the callback was not given to the Trainer itself",
    "Say Trainer(..., callbacks=[elastic])",
    "Some settings have to be in place before the training begins.",
)
JIT_CHECKPOINT = Diagnostic(
    320,
    "enable_jit_checkpoint was given, and this callback saves when nodes are wanted",
    "Leave enable_jit_checkpoint out",
    "Both would save at the same signal.",
)
OUTPUT_DIR = Diagnostic(
    321,
    "output_dir is {given!r}, which is not the trainer's folder",
    "Say TrainingArguments(output_dir=elastic.output_dir)",
    "Checkpoints have to lie where a later start looks for them.",
)
RESUME = Diagnostic(
    322,
    "there is {checkpoint} to go on from",
    "Say trainer.train(resume_from_checkpoint=elastic.checkpoint)",
    "Else the training would begin anew after every change of nodes.",
)
OTHER_BATCH = Diagnostic(
    323,
    "{checkpoint} was written with {before} samples a step, and this run has {now}",
    "Keep the batch, or begin anew in another folder",
    "Hugging Face counts epochs by steps, and would count them wrongly.",
)
EVALUATION_FILLED_UP = Diagnostic(
    324,
    "an evaluation of {length} samples in batches of {batch} ends with one of {left}, which Hugging Face "
    "fills up on several nodes",
    "Take a per_device_eval_batch_size that divides {length}, or leave {left} samples out",
    "It takes samples that it has had, so that eval_loss depends on the number of nodes. So may the best "
    "checkpoint, an early stopping or a plateau.",
)
MODEL_WITHOUT_ITEMS = Diagnostic(
    325,
    "{model} computes its loss without {items}, although its forward takes it",
    "Say model.accepts_loss_kwargs = False before you make the Trainer",
    "Hugging Face takes that loss for a sum divided by the items. It multiplies it by the number of nodes "
    "and of micro-batches.",
)
FUNCTION_WITHOUT_ITEMS = Diagnostic(
    326,
    "compute_loss_func does not use {items}",
    "Return the sum over all items divided by {items}",
    "Hugging Face multiplies what it returns by the number of nodes and of micro-batches.",
)
LOSS_WITHOUT_ITEMS = Diagnostic(
    327,
    "compute_loss does not use {items}",
    "If it returns a mean, set self.model_accepts_loss_kwargs = False in your Trainer, after "
    "super().__init__(...)",
    "Hugging Face does not divide what it returns by the number of micro-batches, which depends on that of "
    "nodes.",
)
LOSS_WITHOUT_NODES = Diagnostic(
    328,
    "compute_loss uses {items}, which counts those of all nodes, and not the number of nodes",
    "Have it multiply its loss by self.accelerator.num_processes",
    "Averaging divides by the number of nodes, so gradients are half as large on two nodes.",
)
LOSS_WITH_TERMS = Diagnostic(
    329,
    "compute_loss changes Hugging Face's loss, which is one for all micro-batches of a step together",
    "Divide what you add by self.current_gradient_accumulation_steps",
    "A mean that it adds counts once for each micro-batch, whose number depends on that of nodes.",
)
SMOOTHING = Diagnostic(
    330,
    "this version of transformers smoothes labels without {items}",
    "Install transformers 5.23 or newer, or leave label_smoothing_factor out. Or say "
    "model.accepts_loss_kwargs = False before you make the Trainer",
    "It multiplies the mean by the number of nodes and of micro-batches.",
)
WEIGHTS_APART = Diagnostic(
    331,
    "the ranks do not have the same weights any more: {difference}",
    "In compute_loss, call the argument model and not self.model. Change weights by nothing that is a "
    "rank's own",
    "self.model averages nothing. Without an average each rank trains a model of its own.",
)
NOT_RESTORED = Diagnostic(
    332,
    "{name} is not what the checkpoint has: on_train_begin of a callback, or the Trainer itself, changes it",
    "Do that before trainer.train(), whose checkpoint comes after it, or only where elastic.checkpoint is "
    "None",
    "on_train_begin is called again after every change of nodes, and what was trained is lost.",
)
MASKED_MEAN = Diagnostic(
    333,
    "labels are masked (-100), and the loss is a mean over those of {few} samples at once on {fewest} ranks, "
    "of {many} on {most}",
    "{cure}. Or give the Trainer a compute_loss_func that divides a sum by num_items_in_batch",
    "In such a mean a label weighs the more the fewer there are beside it. So other weights come out on "
    "other numbers of nodes. See [A loss of your own](huggingface.md#a-loss-of-your-own).",
)
CALLBACK_KEEPS = Diagnostic(
    334,
    "a callback of the script keeps what changes while it trains, and no checkpoint has it: {names}",
    "Compute it from state.global_step, make it a buffer of the model, or derive the callback from "
    "transformers' ExportableState and return it in state()",
    "Every change of nodes begins new processes, in which it begins anew. See "
    "[What goes on](huggingface.md#what-goes-on-after-a-change-of-nodes).",
)
