"""Output of the commands, as pure functions of the cluster's state."""
