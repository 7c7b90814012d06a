"""Which file system a path is on, and that the store refuses one that several machines share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer.errors import BftrainerError
from bftrainer.state_dir import filesystem
from bftrainer.state_dir.filesystem import Mount, find
from bftrainer.state_dir.folder import make_state_dir

TABLE = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:40 / /home rw,relatime shared:5 - nfs4 filer:/home rw,vers=4.2,addr=10.0.0.1
31 30 0:41 / /home/alice/work rw,nosuid - fuse.sshfs alice@far:/work rw
32 22 0:42 / /scratch rw - lustre 10.0.0.2@o2ib:/scratch rw,flock
33 22 8:1 / /local\040disk rw - xfs /dev/sda1 rw
34 32 8:2 / /scratch rw - ext4 /dev/sdb1 rw
35 22 0:43 / /ntfs rw - fuseblk /dev/sdc1 rw
""".strip().splitlines()


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/lib/x", "ext4", False),
        ("/home/alice/.local/state", "nfs4", True),
        ("/homes/alice", "ext4", False),
        ("/home/alice/work/x", "fuse.sshfs", True),
        ("/local disk/x", "xfs", False),
        ("/scratch/x", "ext4", False),
        ("/ntfs", "fuseblk", False),
    ],
)
def test_the_longest_mount_that_is_not_hidden_counts(path: str, kind: str, network: bool) -> None:
    found = find(Path(path), TABLE)
    assert found is not None
    assert (found.kind, found.is_network) == (kind, network)


@pytest.mark.parametrize("kind", ["nfs", "lustre", "gpfs", "beegfs", "cifs", "smb3", "afs", "ceph", "ocfs2"])
def test_file_systems_of_several_machines_are_known(kind: str) -> None:
    assert Mount(kind, Path("/")).is_network


def test_a_table_that_makes_no_sense_says_nothing() -> None:
    assert find(Path("/a"), ["", "nonsense", "1 2 3 4 / / - "]) is None


@pytest.fixture
def home_on_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the table of mounts says is on NFS."""
    table = tmp_path / "mountinfo"
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    table.write_text(f"{TABLE[0]}\n30 22 0:40 / {home} rw - nfs4 filer:/home rw\n")
    monkeypatch.setattr(filesystem, "MOUNTS", table)
    return home


def test_the_state_of_a_shared_home_is_refused_with_a_local_disk_to_take(home_on_nfs: Path) -> None:
    place = home_on_nfs / ".local" / "state" / "bftrainer"
    with pytest.raises(BftrainerError) as refused:
        make_state_dir(place, say=print)
    said = str(refused.value)
    assert f"{place} is on a network file system (nfs4, mounted at {home_on_nfs})" in said
    assert "\n  state_dir: /var/tmp/bftrainer-" in said
    assert f"\n  pilot_log_dir: {place}/logs" in said
    assert "state_dir_on_network: true" in said
    assert not place.exists()
    with pytest.raises(BftrainerError, match="such as /var/lib/bftrainer"):
        make_state_dir(place, private=True, say=print)
    make_state_dir(place, on_network=True, say=print)
    assert place.exists()


def test_the_daemon_says_so_before_it_makes_anything(home_on_nfs: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom bftrainer.state_dir import filesystem\n"
        f"filesystem.MOUNTS = Path({str(filesystem.MOUNTS)!r})\n"
        f"sys.argv = ['bftrainer', 'daemon', '--state-dir', {str(home_on_nfs / 's')!r}]\n"
        "from bftrainer.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "network file system (nfs4" in done.stderr
    assert list(home_on_nfs.iterdir()) == []
