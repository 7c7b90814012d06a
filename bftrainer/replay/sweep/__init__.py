"""Many replays: a grid of scenarios on processes or MPI ranks."""
