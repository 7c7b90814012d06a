"""Slurm's queue: which pending main jobs could start, where, and what is left for pilots. Pure."""
