"""The errors that users read, and those that parts of the daemon handle for each other."""


class BftrainerError(Exception):
    """An error that its reader can mend: the message states the value, the bound and the next step."""


class SolverError(BftrainerError, RuntimeError):
    """A solver is not installed, has no licence, or failed."""


class SchedulerError(Exception):
    """The scheduler could not be asked or did not obey; the next poll tries again."""


class NoRoomError(SchedulerError):
    """A node takes no pilot now, which says nothing of other nodes."""


class KeptError(SchedulerError):
    """The command to end a user's pilot runs as that user, and was killed or held up: the pilot may stay."""


class UnsureError(SchedulerError):
    """The answer to an order was lost: it may be carried out nonetheless."""


class CrowdedError(UnsureError):
    """The scheduler takes no jobs for a while, from any user. It may take this one later."""


class StoreError(BftrainerError):
    """The database cannot be read or written; nothing of the transaction was kept."""


class UnstorableError(StoreError):
    """The values themselves cannot be stored: to try again would fail again."""


class DamagedError(StoreError):
    """A row of the database holds what bftrainer would not have written."""


class NameTakenError(StoreError):
    """An unfinished trainer of the same user has this name."""
