"""What schedulers have in common: running commands, finding the pilot's batch script."""
