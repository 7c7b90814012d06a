"""Which nodes are ours: seen, held and given back. Knows no daemon."""
