"""Lightning's Trainer on nodes that come and go."""
