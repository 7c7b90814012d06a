"""Parts that all batch schedulers share: running commands, pilots and their script, claims of main jobs."""
