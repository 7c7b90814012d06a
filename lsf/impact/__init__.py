"""Tests whether main jobs on an emulated LSF notice bftrainer."""
