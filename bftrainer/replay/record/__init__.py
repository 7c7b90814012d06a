"""Records of replays for their reports: taken down while a replay runs, kept in a file."""
