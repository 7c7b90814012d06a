"""Simulated trainers: what they do between two events, as the launcher would report it."""
