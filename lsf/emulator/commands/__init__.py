"""The commands: each parses its command line, acts on the cluster and prints."""
