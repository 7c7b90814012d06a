"""Searches run trial by trial on nodes that come and go."""
