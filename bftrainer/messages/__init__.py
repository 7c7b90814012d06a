"""Refusals and warnings that users read, each with an id that stays: pure data, by who reads them.

`docs/messages.md` is made of it, and `bftrainer explain` prints from it.
"""
