"""What daemon, agents and workers say to each other: the messages, their seals and the connections."""
