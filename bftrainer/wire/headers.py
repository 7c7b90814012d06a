"""Headers of an agent's request, before anything is proven: they name the pilot whose secret checks it."""

from __future__ import annotations

PROTOCOL = "2"
"""Grows when agents and daemon of different versions would misunderstand each other."""
PROTOCOL_HEADER = "Bftrainer-Protocol"
TAG_HEADER = "Bftrainer-Tag"
NONCE_HEADER = "Bftrainer-Nonce"
