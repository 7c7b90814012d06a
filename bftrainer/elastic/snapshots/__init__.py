"""Snapshots of the training state: memory that the agent shares, and writes also after a worker's end."""
