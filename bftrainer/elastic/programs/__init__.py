"""Programs for `python -m`: the warm process of an agent, and the host of torchrun's stores."""
