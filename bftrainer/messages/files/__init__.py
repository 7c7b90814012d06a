"""Refusals of files that users write besides specs: studies and settings."""
