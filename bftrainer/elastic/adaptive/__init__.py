"""Batches that adapt while a run trains: gradient noise and times are measured, and goodput decides."""
