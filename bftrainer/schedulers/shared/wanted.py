"""What pending main jobs would need to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bftrainer.model.machine import Claim


@dataclass(frozen=True, slots=True)
class Claims:
    """What pending main jobs would need: nodes of ours, and free nodes."""

    claims: tuple[Claim, ...] = ()
    taken: Mapping[str, str] = field(
        default_factory=dict
    )  # free node -> the job that is about to start there
    ready: frozenset[str] = frozenset()  # jobs that need no other nodes than these
    ahead: frozenset[str] = frozenset()  # jobs that cannot start now, and have their nodes cleared before
    users: Mapping[str, str] = field(default_factory=dict)  # of the jobs that could start: whose they are

    @property
    def jobs(self) -> frozenset[str]:
        """The jobs that are expected to start now."""
        return (frozenset(claim.job for claim in self.claims) | frozenset(self.taken.values())) - self.ahead
