"""HTTP between command line, agents and daemon, on a Unix socket that only its owner can open."""
