"""Readers of what LSF's commands print: text in, frozen dataclasses out. Pure."""
