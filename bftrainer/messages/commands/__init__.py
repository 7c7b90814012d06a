"""Refusals of commands: on the command line, on the way to the daemon, and by the daemon."""
