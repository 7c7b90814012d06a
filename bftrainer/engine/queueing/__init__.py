"""Trainers that wait: their lines, places, turns and shares. Pure."""
