"""The kind of file system that a path is on, from the kernel's table of mounts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

NETWORK = frozenset(
    {
        *("9p", "acfs", "afs", "auristorfs", "beegfs", "beegfs_nodev", "ceph", "cifs", "coda", "davfs"),
        *("dvs", "fhgfs", "gfs", "gfs2", "glusterfs", "gpfs", "kafs", "lustre", "lustre_lite", "ncp"),
        *("ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb2", "smb3", "smbfs"),
        *("vastnfs", "wekafs"),
    }
)
"""File systems that several machines share. SQLite's WAL needs memory that all of its users share, and so one
machine."""
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
"""File systems whose contents are lost when the machine restarts."""
NO_STORAGE = frozenset(
    {
        *("binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs"),
        *("fusectl", "mqueue", "nsfs", "proc", "pstore", "securityfs", "selinuxfs", "sysfs", "tracefs"),
    }
)
"""File systems through which the kernel speaks: nobody can keep files there."""
LOCAL_FUSE = frozenset({"fuseblk", "fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuse.mergerfs"})
"""The file systems of FUSE that are on a disk of this machine. All others may be like sshfs."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file system, and the folder at which it is mounted."""

    kind: str
    at: Path

    @property
    def is_network(self) -> bool:
        """True if other machines may use it at the same time."""
        fuse = self.kind == "fuse" or self.kind.startswith("fuse.")
        return self.kind in NETWORK or (fuse and self.kind not in LOCAL_FUSE)

    @property
    def is_in_memory(self) -> bool:
        """True if all files are lost when the machine restarts."""
        return self.kind in IN_MEMORY


def mount_of(path: Path) -> Mount | None:
    """The file system that `path` is on, or will be on when it is made; None if the kernel does not say.

    Raises:
        OSError: the path cannot be followed.
    """
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    return find(Path(os.path.realpath(path)), lines)


def find(path: Path, lines: Iterable[str]) -> Mount | None:
    """The last mount in a table of mounts that has a whole path without links. Pure.

    Of two at the same folder the later one hides the other.
    """
    found: Mount | None = None
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(" "), right.split(" ")
        if len(fields) < 5 or not kinds[0]:
            continue
        mount = Mount(kinds[0], Path(_unescaped(fields[4])))
        deeper = found is None or len(mount.at.parts) >= len(found.at.parts)
        if path.is_relative_to(mount.at) and deeper:
            found = mount
    return found


def _unescaped(text: str) -> str:
    """The kernel writes spaces, tabs, line ends and backslashes as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda digits: chr(int(digits[1], 8)), text)
