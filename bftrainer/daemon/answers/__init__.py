"""Answers to callers: who may know what, in pages of a bounded size, made beside the event loop."""
