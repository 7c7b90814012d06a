"""The native training loop: the script's run, its steps, and the processes that it trains with."""
