"""Trainers whose scripts know torchrun: new processes for every membership, from a checkpoint."""
