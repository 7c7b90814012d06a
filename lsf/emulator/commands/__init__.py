"""What each command reads from its command line, does to the cluster and prints."""
