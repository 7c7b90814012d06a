"""One training step on any number of nodes: data, batch policy, update, averaging, random numbers."""
