"""Scripts written for torchrun: new processes for every membership, which start from a checkpoint."""
