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
