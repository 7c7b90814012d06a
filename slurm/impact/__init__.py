"""Whether main jobs on Slurm notice bftrainer: the conditions that are compared, and what slurmctld logs."""
