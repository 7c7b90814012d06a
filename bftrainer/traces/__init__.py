"""Logs of idle nodes: read, described, drawn, made up. The local scheduler plays them, too."""
