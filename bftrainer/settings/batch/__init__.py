"""The settings of batch systems: what is watched on them, and how pilots get there."""
