"""Slurm: its commands, what they print, what that says of nodes, pilots and main jobs."""
