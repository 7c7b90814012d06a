"""LSF's queue: which pending main jobs could start, where, and until when hosts stay idle. Pure."""
