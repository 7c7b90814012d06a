"""Bounds of `GET /v1/trainers`, which lists all trainers that have not ended, and the others in pages."""

ENDED = 100
"""Without `limit`, so many trainers that ended are listed."""
MAX_ENDED = 1000
"""At most so many are in one answer; `skip` leads to the next page."""
LEFT_OUT = "Bftrainer-Left-Out"
"""The header of the answer that tells how many trainers that ended are left out."""
