"""The daemon's log lines, and counts for Prometheus."""
