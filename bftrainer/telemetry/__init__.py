"""What the daemon tells of itself: log lines and counts for Prometheus."""
