"""What a batch system shows and does: one module per scheduler, one contract for all."""
