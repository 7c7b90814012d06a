"""How fast a trainer is on n nodes, and what rescaling it costs: from spec and observations. Pure."""
