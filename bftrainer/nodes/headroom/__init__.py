"""Idle nodes left to main jobs: as many of each kind as settings, earlier jobs and a promise say."""
