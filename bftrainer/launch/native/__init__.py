"""Scripts that use `bftrainer.elastic`: they change their membership while they run."""
