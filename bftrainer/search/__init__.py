"""Studies: searches over hyper-parameters whose trials are trainers."""
