"""Replays: the engine of the daemon, fed from a log on a virtual clock."""
