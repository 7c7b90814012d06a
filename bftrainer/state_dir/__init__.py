"""The folder of the daemon's state: where it may lie, who can read it, which daemon has it, its room."""
