"""Files that an agent writes for its workers: their logs, and the checkpoints of their snapshots."""
