"""Partial back-propagation: of k workers, worker j computes the gradients of the last j/k of the model."""
