"""The callback that a script under Lightning's Trainer imports."""

from bftrainer.elastic.frameworks.lightning.callback import ElasticCallback

__all__ = ["ElasticCallback"]
