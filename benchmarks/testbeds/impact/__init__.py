"""Whether main jobs notice bftrainer: runs with and without it compared, and why jobs started late."""
