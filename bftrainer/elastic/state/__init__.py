"""The training state: what survives a change of members, how newcomers get it, checkpoints."""
