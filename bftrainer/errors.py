"""The root of all errors that a user is meant to read."""


class BftrainerError(Exception):
    """Something that its reader can mend: the message states the value, the bound and the next step."""


class SolverError(BftrainerError, RuntimeError):
    """A solver is not installed, has no licence, or failed."""
