"""The store as the daemon uses it: a thread writes what was decided before anything is done."""
