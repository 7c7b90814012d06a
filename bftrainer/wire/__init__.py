"""Messages between daemon, agents and workers, their seals and the connections."""
