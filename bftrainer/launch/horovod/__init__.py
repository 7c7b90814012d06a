"""Trainers that use Elastic Horovod."""
