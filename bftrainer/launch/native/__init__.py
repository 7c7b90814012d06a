"""Trainers that use `bftrainer.elastic`: members change in mid-run."""
