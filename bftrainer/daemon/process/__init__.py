"""The process of a daemon: built from settings, ended and told to read its settings again by signals."""
