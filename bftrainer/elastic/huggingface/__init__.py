"""The callback that a script under Hugging Face's Trainer imports."""

from bftrainer.elastic.frameworks.huggingface.callback import ElasticCallback

__all__ = ["ElasticCallback"]
