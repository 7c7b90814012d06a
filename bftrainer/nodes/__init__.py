"""The nodes: which are ours, how they are held, and how they are given back. Knows no daemon."""
