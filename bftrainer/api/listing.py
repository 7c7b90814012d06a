"""Bounds of `GET /v1/trainers`: all that have not ended are listed, and pages of those that ended last."""

ENDED = 100
"""So many trainers that ended are listed where no `limit` is given."""
MAX_ENDED = 1000
"""At most so many are in one answer; `skip` leads to the next ones."""
LEFT_OUT = "Bftrainer-Left-Out"
"""The answer's header that says how many more have ended."""
