"""Adapters to batch systems: one module per scheduler, one contract for all."""
