"""Logs of idle nodes that are made up, with the statistics of real ones."""
