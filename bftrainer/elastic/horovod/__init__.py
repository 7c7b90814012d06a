"""Elastic Horovod without its launcher: the driver, and what workers need to follow it."""
