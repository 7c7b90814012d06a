"""Checks of a site's Slurm for `bftrainer admin check`, and of its accounting."""
