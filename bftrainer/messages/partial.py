"""Messages of partial back-propagation, and of trainers that take turns on a device."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

ADAPTIVE = Diagnostic(
    801,
    "partial does not go together with elastic.Adaptive",
    "Give elastic.FixedGlobal or elastic.FixedPerNode, or leave partial out",
    "A batch that adapts follows the noise by which full gradients of workers differ. Partial gradients do "
    "not tell it.",
)
WITH_DDP = Diagnostic(
    802,
    "partial does not go together with ddp",
    "Leave ddp out",
    "DistributedDataParallel exchanges all parameters, in buckets that are fixed when the run begins, and "
    "divides by all workers.",
)
NOT_AVERAGED = Diagnostic(
    803,
    "partial does not go together with average=False",
    "Leave average=False out",
    "A gradient is the mean over those workers that have computed it. Only the run knows which these are.",
)
SEVERAL = Diagnostic(
    804,
    "partial does not go together with several optimizers",
    "Leave partial out",
    "The backward passes of one turn have no common order, so nothing says what lies before a worker's part.",
)
COMPILED = Diagnostic(
    805,
    "partial does not go together with torch.compile",
    "Give the model as it is",
    "A compiled backward pass completes all gradients at its end, so that no part can be left out.",
)
SPARSE = Diagnostic(
    806,
    "partial does not go together with the embedding {name!r}, which has sparse gradients",
    "Leave sparse=True out",
    "Sparse gradients travel whole, whoever has computed them.",
)
LOSS_BACKWARD = Diagnostic(
    807,
    "with partial, the script called loss.backward()",
    "Say run.backward(loss)",
    "The run watches the backward pass, to measure in which order gradients are complete.",
)
SHARED_WEIGHTS = Diagnostic(
    808,
    "partial: the module {name!r} runs several times in one forward pass, each time on what the time before "
    "gave, as blocks do that share weights",
    "Leave partial out",
    "The gradient of such a module is complete only where the backward pass has come through all of it, so "
    "that no part can be left out.",
)
REENTRANT = Diagnostic(
    809,
    "partial: the module {name!r} is under reentrant checkpointing",
    "Give use_reentrant=False to torch.utils.checkpoint (of Hugging Face: "
    'gradient_checkpointing_kwargs={{"use_reentrant": False}}), or leave partial out',
    "With it, gradients go missing without a word where what lies before is frozen.",
)
NO_MODULE = Diagnostic(
    810,
    "partial: by={names!r}: no parameter that is trained belongs to a module {name!r}",
    "Give names as model.named_modules() has them",
    "Each name begins a part of the model. One without parameters that are trained has no gradient.",
)
BY = Diagnostic(
    811,
    "partial: by={by!r} says not what the model is divided by",
    "Give 'time', 'modules', or a list of one name of a module or more",
    "The model is divided by the time of its backward pass, by its modules' number, or where you say.",
)
RATE = Diagnostic(
    812,
    "partial: lr={lr!r} is no rule for the learning rate",
    "Give 'share' or 'none'",
    "With 'share' a parameter's learning rate follows the share of the samples that gave its gradient.",
)
WARM_UP = Diagnostic(
    813,
    "partial: {name}={value!r} is no number of full steps or epochs",
    "Give a whole number from 0 on",
    "In so many steps or epochs at first, all workers compute all gradients.",
)
NO_OPTIONS = Diagnostic(
    814,
    "partial={given!r} is no elastic.Partial",
    "Give elastic.Partial(...)",
    "A script says its options by this class. In a spec `partial: true` will do.",
)
WITHIN_BACKWARD = Diagnostic(
    821,
    "share: time needs gradients that are exchanged after the backward pass",
    "Leave ddp and average=False out of elastic.Run, or share: time out of the spec",
    "A worker would wait for others while it has its turn on the device, and these for the turns of others "
    "still: see [Two trainers in turn](turns.md).",
)
LOST_TURN = Diagnostic(
    822,
    "this worker lost its turn on the device, as another waited for too long",
    "See that forward and backward passes wait for nobody, or leave share: time out of the spec",
    "A turn is lost after 10 times the worker's longest. Layers that exchange in the forward pass, such as "
    "SyncBatchNorm, lose theirs again and again.",
)
