"""Typed JSON objects that answers consist of, and how they follow from what the daemon knows. Pure."""
