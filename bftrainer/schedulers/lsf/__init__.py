"""LSF: its commands, what they print, what that says of hosts, pilots and main jobs."""
