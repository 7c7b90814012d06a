"""The commands on studies and plans, with what only they share."""
