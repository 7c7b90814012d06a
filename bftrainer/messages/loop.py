"""Messages to a script with a loop over `elastic.Run`."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

NO_STEP = Diagnostic(
    101,
    "the loop went on without run.step()",
    "Call run.step() once per batch, on all nodes. To leave a bad batch out, take a loss of zero: 0.0 * "
    "sum(p.sum() for p in model.parameters())",
    "Nodes exchange their gradients in run.step(), so one that leaves it out keeps all others waiting. All "
    "nodes have to leave the batch out together: see [A bad batch](your-script.md#a-bad-batch-loss-is-nan).",
)
OUTSIDE_LOOP = Diagnostic(
    102,
    "run.{call} was called outside of the loop, or again for the same batch",
    "Call it once per batch, inside `for batch in run`",
    "A step belongs to the samples that the loop has just handed out. Without them there is nothing to "
    "average.",
)
ZEROED = Diagnostic(
    103,
    "gradients were set to zero between the micro-batches of a step",
    "Leave zero_grad() to the run",
    "A step may have several micro-batches, whose gradients add up. A zero_grad() in the loop's body throws "
    "those of the earlier ones away.",
)
UNWEIGHED = Diagnostic(
    104,
    "a step has several micro-batches, and run.backward was not called for this one",
    "Say run.backward(loss) in place of loss.backward()",
    "Micro-batches of a step may have different sizes. run.backward weighs each by its samples.",
)
IN_EVALUATION = Diagnostic(
    105,
    "the model is in evaluation mode, and was in training mode when the loop began",
    "Say model.train() after the evaluation, or evaluate by run.evaluate, which does so",
    "A node that joins starts in training mode. Dropout would be off on some nodes and on on others.",
)
STEPPED_AGAIN = Diagnostic(
    106,
    "run.step({name!r}) was called twice for one micro-batch",
    "Call run.step({name!r}) once for each micro-batch",
    "With several optimisers and several micro-batches, the run counts one call for each of them.",
)
SEVERAL_IN_PARTS = Diagnostic(
    107,
    "a step has several micro-batches, and the run several optimisers",
    "Give a batch_size as large as a node's share of a step, or take fewer samples a step",
    "Each optimiser is stepped with the last micro-batch. Gradients of the earlier ones are then of models "
    "before another optimiser's step, so the result depends on the number of nodes.",
)
SECOND_LOOP = Diagnostic(
    108,
    "this run's loop is over: one `for batch in run` goes through all epochs",
    "Give elastic.Run(epochs=...) and leave the outer loop over epochs out. What stood at its end goes into "
    "a function for run.after_epoch",
    "A node that joins begins the script at its first line and has to find the place where the others are. "
    "The run keeps that place, so its loop goes through the epochs by itself.",
)
ALL_WAITED = Diagnostic(
    109,
    "all nodes stood still for {seconds:.0f} s between this node's start and its loop",
    "Prepare what takes time before run.start(), and before you ask for run.rank or run.position",
    "These make the process a member. From then on the others wait for it at each step.",
)
NO_LENGTH = Diagnostic(
    110,
    "the run does not know how many batches it has",
    "Give data with a length and elastic.Run(epochs=...), or a spec with work",
    "A stream has no length, and a run without epochs goes on until the spec's samples are done.",
)
IDLE_STEPS = Diagnostic(
    111,
    "{steps} steps in a row have changed nothing, as no parameter had a gradient",
    "Say run.backward(loss) before run.step(). Do not capture the backward pass in a CUDA graph",
    "A captured CUDA graph writes gradients to memory of its own, where the run does not find them. Capture "
    "the forward pass alone. After 100 such steps the trainer fails, as it trains nothing.",
)
PERTURBED = Diagnostic(
    112,
    "the script changes weights in the loop's body before a backward pass",
    "Perturb them in the step of a second optimizer, which has the average over all nodes. Noise that does "
    "not follow from gradients may stay",
    "Before run.step() a node has its own gradients only. A perturbation that follows from them, as in SAM, "
    "depends on the number of nodes: see [What the loop's body "
    "changes](your-script.md#what-the-loops-body-changes).",
)
WEIGHTS_CHANGED = Diagnostic(
    113,
    "the script, or the model's forward pass, changes weights before run.step()",
    "Change them in a function for run.after_step. Or undo the change where run.step() returns False",
    "Where a node is lost in a step, the optimiser's part is undone and the batch comes again. What the "
    "script has changed stays, and is changed once more.",
)
GRADIENTS_CHANGED = Diagnostic(
    114,
    "the script changes gradients between backward and run.step()",
    "To clip their norm, give elastic.Run(clip_norm=...). Else change them in "
    "optimizer.register_step_pre_hook(...)",
    "There, gradients are this node's own, of its share of the samples. What comes out would depend on the "
    "number of nodes. The hook has the average over all nodes.",
)
GRADIENTS_LEFT = Diagnostic(
    115,
    "parameters have gradients from before run.backward(), which are added to the step",
    "Compute the gradients of an attack or a probe with torch.autograd.grad(...). Add a part of the loss to "
    "the loss that run.backward() gets",
    "Every backward() in the loop's body adds to the gradients. Those outside of run.backward() are not "
    "weighed by the node's samples, and where a step has several micro-batches they are refused.",
)
GRADIENT_HOOKS = Diagnostic(
    116,
    "parameters have hooks on their gradients (register_hook)",
    "Clip, scale or add noise in optimizer.register_step_pre_hook(...), or give elastic.Run(clip_norm=...). "
    "A hook that only reads may stay",
    "Such a hook sees this node's own gradients, of its share of the samples. One that changes them makes "
    "the step depend on the number of nodes. The optimiser's hook has the average. Noise has to be the same "
    "on all nodes: draw it from a generator that is seeded by run.position.step.",
)
OPTIMIZER_TWICE = Diagnostic(
    117,
    "the script calls {optimizer}.step() in the loop, and {call} steps this optimizer, too",
    "Leave optimizer.step() out: {call} stands in its place",
    "{call} steps the optimiser by the average over all nodes. A second step would be by this node's "
    "gradients alone.",
)
SCHEDULER_TWICE = Diagnostic(
    118,
    "the script calls {scheduler}.step() in the loop, and the run steps this scheduler, too",
    'Leave scheduler.step() out. If it counts epochs, give scheduler_every="epoch"',
    "A scheduler given as scheduler= is the run's: it is stepped after each step, and nodes that join get "
    "its state. Stepped twice, its course ends in half of the time.",
)
LOOP_VARIABLES = Diagnostic(
    119,
    "variables of the script change while it trains, and the run does not have them: {names}",
    "Take run.position for counts, or give an object with state_dict() and load_state_dict() as parts=",
    "Such variables begin anew on nodes that join and after a restart. What follows from them is wrong "
    "there: see [What your script may keep](your-script.md#what-your-script-may-keep).",
)
NOT_AVERAGED = Diagnostic(
    120,
    "with ddp, no backward pass of run.model(...) was seen in this step",
    "Call run.model in the forward pass, not the model itself, and leave no_sync() out",
    "DDP exchanges gradients in the backward pass of the model that it wraps. With micro-batches the run "
    "sees to it that only the last one does so.",
)
BUFFERS_TOO_LARGE = Diagnostic(
    121,
    "a node was lost in a step, and buffers that its forward pass has changed stay changed: they have {mib} "
    "MiB",
    "Move large state out of buffers if a change per step must not count twice",
    "The run keeps a copy of buffers for the case that a step is lost. It does not where they are larger "
    "than 64 MiB and than all parameters.",
)
DEFAULT_GROUP = Diagnostic(
    122,
    "the script has initialised torch.distributed already",
    "Leave init_process_group out: the run provides the default group",
    "The run's group lasts while nodes come and go. A group that the script makes does not.",
)
NCCL_FAILED = Diagnostic(
    123,
    "NCCL cannot connect the members ({reason}): gradients go through the CPU, which is slow",
    "Give each worker a GPU of its own, or see what NCCL_DEBUG=INFO prints",
    "NCCL takes one GPU for each member. The training goes on over Gloo: see [GPU nodes](gpu.md).",
)
TOO_MANY_FIGURES = Diagnostic(
    124,
    "{name!r} and further new names of figures are not reported: a trainer has {most} at most",
    "Use one name for a figure at all steps: bftrainer keeps its course",
    "A name that has the step or the epoch in it is a new figure each time.",
)
WHOLE_TRAINING = Diagnostic(
    125,
    "of={samples!r} is no number of samples",
    "Give the samples of the whole training, a whole number from 1 on, or nothing",
    "The number is what `list` and `show` count progress against. It does not end the training.",
)
SECOND_RUN = Diagnostic(
    126,
    "this process has an elastic.Run already, or has called elastic.attach()",
    "Submit a trainer for each run, with the script's arguments in the spec's command. Or give one run all "
    "models, by name",
    "A trainer has one run. A second one would train on every node by itself, and begin anew whenever nodes "
    "come and go.",
)
NOT_STARTED = Diagnostic(
    127,
    "another program than bftrainer started this process, and {what}",
    "Let the spec's command start the script itself, as in `command: python train.py`. A script that uses "
    "torch.distributed also needs `launcher: torchrun`. In a shell script, write `exec python train.py`",
    "Programs that start processes (accelerate launch, torchrun, mpirun) hide bftrainer's connection and "
    "its signals. bftrainer starts a process on each node, or on each of its GPUs. It sets RANK, "
    "WORLD_SIZE, MASTER_ADDR and MASTER_PORT.",
)
