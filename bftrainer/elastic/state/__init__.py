"""The training state: what it consists of, how newcomers receive it, and checkpoints."""
