"""Tests whether main jobs on Slurm notice bftrainer: the conditions compared, and slurmctld's logs."""
