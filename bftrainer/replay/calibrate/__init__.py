"""Calibration: what a replay of a daemon's own history predicts, beside what really happened."""
