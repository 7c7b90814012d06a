"""Sweeps: one replay for every combination of parameters, in parallel, resumable."""
