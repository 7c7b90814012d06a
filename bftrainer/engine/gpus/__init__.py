"""Single GPUs shared out between trainers. Pure."""
