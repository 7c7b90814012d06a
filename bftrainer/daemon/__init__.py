"""The daemon: composes the other packages. Only the command line and tests import it."""
