"""How a trainer's workers start and change: one module per runtime, one contract for all."""
