"""The agent, which runs inside a pilot: starts, watches and stops the workers of one node."""
