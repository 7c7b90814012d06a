"""A user's YAML in, a validated `TrainerSpec` out; every error names file, line and remedy."""
