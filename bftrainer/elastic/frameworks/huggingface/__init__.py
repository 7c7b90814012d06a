"""Hugging Face's Trainer on nodes that come and go."""
