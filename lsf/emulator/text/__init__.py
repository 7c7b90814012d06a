"""What the commands print, as pure functions of what the cluster is."""
