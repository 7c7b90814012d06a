"""A rehearsal of a trainer's script (`bftrainer try`): runs under changes, compared with one in peace."""
