"""One training step: the samples of each rank, averaged gradients, the update, the learning rate."""
