"""Plans a search under a deadline: how many nodes in each stage, how long it takes and what it costs."""
