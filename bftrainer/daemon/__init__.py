"""The daemon: composes all other rooms. Only the command line and tests import it."""
