"""Inputs of plans: an experiment's stages, their latencies and costs, and tables of both. Pure."""
