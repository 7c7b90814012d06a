"""Replay results as a page with pictures."""
