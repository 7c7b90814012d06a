"""What the request of an agent says before anything is proven: which pilot's secret is to check the rest."""

from __future__ import annotations

PROTOCOL = "2"
"""Grows when agents and daemon of different versions would misunderstand each other."""
PROTOCOL_HEADER = "Bftrainer-Protocol"
TAG_HEADER = "Bftrainer-Tag"
NONCE_HEADER = "Bftrainer-Nonce"
