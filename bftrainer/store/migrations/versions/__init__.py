"""The versions of the tables, oldest first by number."""
