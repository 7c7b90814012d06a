"""The demonstration: a daemon on this machine, and trainers on its idle nodes, watched through the API."""
