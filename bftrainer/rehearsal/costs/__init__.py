"""Partial back-propagation of a user's own model (`bftrainer try --partial`): what it saves and costs."""
