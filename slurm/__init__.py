"""Slurm around bftrainer: what a site adds to its own, and a whole one on one machine to try it on."""
