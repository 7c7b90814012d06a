"""Logs of idle nodes: read, described, drawn and generated. The local scheduler plays them, too."""
