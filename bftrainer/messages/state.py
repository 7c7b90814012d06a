"""Messages on the state that nodes share: what differs between them, and what cannot be kept."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

OTHER_DATA = Diagnostic(
    185,
    "this node's data set is not that of the other nodes, or of the checkpoint: {difference}",
    "Give what draws a split or an order a seed, as in random_split(..., "
    "generator=torch.Generator().manual_seed(0)). Sort what glob or os.listdir return. Where data may "
    'differ, say elastic.Run(..., may_differ=["data set"])',
    "All nodes have to see the same samples in the same order, after a restart as well. Usual causes are "
    "random_split without a generator and train_test_split without random_state: see [The same data on all "
    "nodes](your-script.md#the-same-data-on-all-nodes).",
)
OTHER_TRAINERS_DATA = Diagnostic(
    186,
    "the data set is not the one of the trainer that this one goes on from: {difference}",
    "Nothing needs to be done if the other data is meant",
    "A trainer that goes on from another's checkpoints may have other data. The place in the epoch is the "
    "old one's.",
)
OTHER_SETTINGS = Diagnostic(
    187,
    "elastic.Run has other settings than on the other nodes, or than at an earlier start: {difference}",
    "Give the same settings each time. Leave a resume of your own out, and fix the seed",
    "A script starts again whenever a node comes, and goes on where the run is. epochs= counts from the "
    "run's beginning.",
)
REPLICAS_DIFFER = Diagnostic(
    188,
    "after step {step} the nodes do not have the same state: {name} is {theirs:.9g} on rank {first}, "
    "{mine:.9g} on rank {rank}{more}",
    "Give what has a state to elastic.Run as optimizer=, scheduler= or parts=, and change it on all nodes "
    "alike. Name what may differ in may_differ=[...]",
    "All nodes take the same steps, so all have the same state. The table in [What differs between nodes is "
    "found](your-script.md#what-differs-between-nodes-is-found) says what is wrong, by the name that the "
    "message gives.",
)
DOES_NOT_FIT = Diagnostic(
    189,
    "the state's {name} does not fit what this script builds: {why}",
    "Build all layers and parameter groups before elastic.Run, and freeze what comes later. A changed model "
    "begins in another checkpoint.dir",
    "Layers that a script adds while it trains are missing where it starts anew. Freeze them by "
    "requires_grad_(False) until they are wanted.",
)
PART_NAME = Diagnostic(
    190,
    "part {name!r} has a name that is no word, or that the run has for itself",
    "Take a word such as 'ema', and none of {reserved}",
    "Parts stand in checkpoints by their names, beside those of the run.",
)
PART_WITHOUT_STATE = Diagnostic(
    191,
    "part {name!r}, a {kind}, has no state_dict() and load_state_dict()",
    "Write both: the first returns what the second takes, as a dict of plain values and tensors",
    "Nodes that join get a part's state from a member, and checkpoints hold it: see [Anything with a "
    "state](your-script.md#anything-with-a-state-parts).",
)
PART_EMPTY = Diagnostic(
    192,
    "part {name!r}, a {kind}, has an empty state_dict(), so that nothing of it would be kept",
    "Put its state into state_dict(). Of torchmetrics, call persistent(True) of the metric before",
    "Metrics of torchmetrics leave their counts out of state_dict() unless they are told otherwise.",
)
PART_NOT_PLAIN = Diagnostic(
    193,
    "{what} has a state_dict() that is not of plain values and tensors: {why}",
    "Where it has another object in it, have state_dict() return that object's state_dict(). Or allow a "
    "class of yours with torch.serialization.add_safe_globals",
    "Nodes that join could not take it, and no checkpoint of it could be read. The run loads states without "
    "running code that is in them.",
)
STATE_NOT_TAKEN = Diagnostic(
    194,
    "this state is not taken: {why}",
    "Keep to plain values and tensors in state_dict(), or allow a class of yours with "
    "torch.serialization.add_safe_globals",
    "The run loads states without running code that is in them.",
)
CHECKPOINTS_UNREADABLE = Diagnostic(
    195,
    "no checkpoint in {folder} can be read: {why}",
    "Mend them, or move them away to start anew",
    "The run tries the latest one and those before it. It does not start anew by itself where there are "
    "some, as that would overwrite them.",
)
STATE_ANEW = Diagnostic(
    196,
    "the checkpoint has no {name}: it starts anew",
    "Nothing, if the script has been given it since. Else see that its name is as before",
    "What is new in the script has no state in older checkpoints.",
)
EARLIER_CHECKPOINT = Diagnostic(
    197,
    "checkpoint {path} is not readable, trying the one before: {why}",
    "See that the disk of checkpoint.dir works. Nothing else is to do",
    "The training goes on from an earlier checkpoint, and computes anew what came after it.",
)
ROUNDING = Diagnostic(
    198,
    "the nodes' states differ by rounding",
    "Nothing: that is as expected on different hardware",
    "Devices of other models add in another order. Larger differences end the trainer.",
)
BEGINS_ANEW = Diagnostic(
    199,
    "{why}: this process ends, for another to start anew",
    "Nothing: a new process takes its place",
    "It has half of a change of the state, after others died in the middle. The new one gets the state of a "
    "member that has it whole, or of the last checkpoint.",
)
CHECKPOINT_FAILS = Diagnostic(
    200,
    "checkpoint {path}: {why}",
    "Make room in checkpoint.dir, or name another folder. The training goes on meanwhile",
    "Where no checkpoint can be written, a trainer that loses all its nodes goes on from an older one.",
)
