"""The speed of a trainer on n nodes, and its rescale costs: from spec and observations. Pure."""
