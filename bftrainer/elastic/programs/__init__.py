"""Programs that run beside scripts: the warm process that workers are forked from, torch's TCP store."""
