"""Starts and changes a trainer's workers: one module per runtime, one contract for all."""
