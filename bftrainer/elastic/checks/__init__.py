"""Checks of a script while it trains: each watches, and changes nothing."""
