"""Lists of what does not keep the rules of tests/unit/test_house.py yet: they may only shrink."""

from __future__ import annotations

CLASS_NAMES: frozenset[str] = frozenset(
    {
        "ElasticCallback",  # scripts import it, from bftrainer.elastic.lightning or .huggingface
        "Progress",  # the loop's part, its message, and what the message says: one thing in three layers
        "Regroup",  # an action of the engine, and the message that performs it
        "Study",  # what scripts import from bftrainer.search; what the daemon knows of one
    }
)
"""Names that more than one public class has."""

INSPECTION: frozenset[str] = frozenset(
    {
        "elastic/frameworks/huggingface/loss_by_items.py",
    }
)
"""Modules of `elastic` that look into bytecode, source, all objects or autograd's own fields."""
