"""Trainers that share a device of this node compute in turn: whose turn it is, and how workers hear of it."""
