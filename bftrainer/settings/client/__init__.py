"""Settings that tell commands where the daemon is, read without all others, so that these answer at once."""
