"""This machine as a cluster: slots for nodes, processes for pilots, a log for the main scheduler."""
