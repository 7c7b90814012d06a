"""A site measures itself: snapshots of its idle nodes, written to files for weeks, without a daemon."""
