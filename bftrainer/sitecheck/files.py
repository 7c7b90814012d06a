"""Checks files and folders: the settings, the state directory, its disk, the socket, the nodes' Python."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from bftrainer.files import read_text
from bftrainer.model.finding import Finding, not_checked, ok, warning, wrong
from bftrainer.settings.schedulers import SCHEDULERS
from bftrainer.settings.values import Settings
from bftrainer.state_dir.filesystem import Mount, mount_of
from bftrainer.state_dir.folder import OTHERS, StateDirError, check_state_dir, nearest
from bftrainer.state_dir.lock import check_locks
from bftrainer.state_dir.path_safety import ROOT_UID, danger, socket_danger, user_called
from bftrainer.state_dir.risks import OWN_ACCOUNT, as_root, in_memory
from bftrainer.state_dir.room import room_of

MOST_KB = 1000
MOST_IN_A_SOCKET = 100
AS_DAEMON = "run the check as root or as the daemon's account"


def file_findings(settings: Settings, files: tuple[Path, ...]) -> list[Finding]:
    """All of these; `files` are those that the settings come from."""
    return [
        *(settings_file(path, site=settings.mode == "site") for path in files),
        *state_dir(settings),
        *account(settings),
        socket_folder(settings),
        *pilot_files(settings),
        *pilot_template(settings),
        *users_folders(settings),
    ]


def settings_file(path: Path, *, site: bool) -> Finding:
    """Return who may change and read a file of settings."""
    check = f"settings {path}"
    try:
        found = path.stat()
        other = danger(path, ROOT_UID, strict=site, instead="/etc/bftrainer/config.yaml")
    except OSError as error:
        return wrong(check, str(error.strerror), "make the file, or name another with --config")
    mode, owner = stat.S_IMODE(found.st_mode), user_called(found.st_uid)
    if found.st_uid not in ({ROOT_UID} if site else {ROOT_UID, os.geteuid()}):
        return wrong(
            check,
            f"it belongs to {owner}: that user decides as whom trainers run, and who is an admin",
            f"chown root {path}",
        )
    if mode & 0o022:
        return wrong(check, f"others may change it (mode {mode:o})", f"chmod go-w {path}")
    if other:
        return wrong(check, other.said, other.remedy)
    if site and not mode & stat.S_IROTH:
        return wrong(check, f"users cannot read where the daemon is (mode {mode:o})", f"chmod a+r {path}")
    return ok(check, f"of {owner}, mode {mode:o}")


def state_dir(settings: Settings) -> list[Finding]:
    """The folder, the file system it is on, and the room there: the daemon's own questions at its start."""
    path, check = settings.state_dir, "state directory"
    try:
        mount = mount_of(path)
        if mount is not None and mount.is_network:
            said = f"{path} is on a network file system ({mount.kind}, mounted at {mount.at})"
            remedy = "set state_dir to a folder on a disk of this machine"
            judged = warning if settings.state_dir_on_network else wrong
            return [judged(check, said, remedy)]
        check_state_dir(path, account_of(settings), private=settings.mode == "site")
        check_locks(nearest(path))
        if not path.exists():
            return [_memory(path) or not_checked(check, f"{path} is not there yet: the daemon makes it")]
        return [_safe_state_dir(path, mount), _disk(settings)]
    except OSError as error:
        return [not_checked(check, f"{path}: {error.strerror}", AS_DAEMON)]
    except StateDirError as error:
        return [wrong(check, error.said, error.remedy)]


def _safe_state_dir(path: Path, mount: Mount | None) -> Finding:
    """Return the finding on a folder that the daemon accepts."""
    check, found = "state directory", path.stat()
    if os.geteuid() not in {ROOT_UID, found.st_uid}:
        return not_checked(check, f"{path} is of {user_called(found.st_uid)}", AS_DAEMON)
    if mode := stat.S_IMODE(found.st_mode) & OTHERS:
        said = f"others can enter {path} (mode {mode | 0o700:o}) until the daemon starts and closes it"
        return warning(check, said, f"chmod 700 {path}")
    if volatile := _memory(path):
        return volatile
    kind = mount.kind if mount else "an unknown file system"
    return ok(check, f"{path} of {user_called(found.st_uid)}, on {kind}, closed to others")


def _memory(path: Path) -> Finding | None:
    said = in_memory(path)
    return warning("state directory", said, "set state_dir to a folder on a disk") if said else None


def _disk(settings: Settings) -> Finding:
    room = room_of(settings.state_dir)
    lacking = room.lacks(settings.min_free_mb)
    if lacking:
        return wrong("disk", lacking, f"make room at {settings.state_dir}")
    return ok("disk", f"{room.mb:.0f} MB are free")


def account_of(settings: Settings) -> int | None:
    """The daemon's account: who owns its state directory, or who asks in mode single; None if that is not
    known.

    Raises:
        OSError: the state directory cannot be seen.
    """
    try:
        owner = settings.state_dir.stat().st_uid
    except (FileNotFoundError, NotADirectoryError):
        owner = None
    asks = os.geteuid()
    return asks if settings.mode == "single" and asks != ROOT_UID else owner


def account(settings: Settings) -> list[Finding]:
    """Return whether a site's daemon has an account of its own."""
    try:
        uid = account_of(settings)
    except OSError:
        return []
    if uid is None or settings.mode == "single":
        return []
    said = as_root(uid, site=True)
    return [
        warning("account", said, OWN_ACCOUNT)
        if said
        else ok("account", f"the daemon's is {user_called(uid)}")
    ]


def socket_folder(settings: Settings) -> Finding:
    """Return whether users can reach the socket."""
    socket, check = settings.socket, "socket"
    if len(str(socket).encode()) > MOST_IN_A_SOCKET:
        return wrong(
            check, f"{socket} has more than {MOST_IN_A_SOCKET} bytes", "set socket to a shorter path"
        )
    if settings.mode == "single":
        return ok(check, f"{socket}, for this user only")
    for place in (socket.parent, *socket.parent.parents):
        if closed := _way(place):
            return closed
    try:
        found = socket_danger(socket, account_of(settings))
    except OSError as error:
        return not_checked(check, f"{socket}: {error.strerror}", AS_DAEMON)
    if found:
        return wrong(check, f"{socket}: {found.said}", found.remedy)
    return ok(check, f"users reach {socket}, and no other user can put one there")


def _way(place: Path) -> Finding | None:
    """Return whether users cannot go through a folder on the way to a socket for all of them."""
    try:
        mode = place.stat().st_mode
    except OSError as error:
        remedy = "the unit's RuntimeDirectory makes it when the daemon starts; else make it"
        return not_checked("socket", f"{place}: {error.strerror}", remedy)
    if not mode & stat.S_IXOTH:
        said = f"users cannot go through {place} (mode {stat.S_IMODE(mode):o})"
        return wrong("socket", said, f"chmod o+x {place}")
    return None


def pilot_files(settings: Settings) -> list[Finding]:
    """The Python that nodes start, and the folder of pilots' logs, as far as this machine can tell."""
    if SCHEDULERS[settings.scheduler].on_this_machine:
        return []
    python, check = Path(settings.pilot_python), "pilot_python"
    shared = _is_shared(python)
    words = {name: getattr(settings, name) or name.upper() for name in Settings.model_fields}
    ask = f"{SCHEDULERS[settings.scheduler].on_a_node.format(**words)} {python} -c 'import bftrainer'"
    if not os.access(python, os.X_OK):
        found = warning(check, f"{python} cannot be started on this machine", f"ask a node: {ask}")
    elif not shared:
        found = not_checked(check, f"{python} is on a disk of this machine; nodes need it at this path", ask)
    else:
        found = ok(check, f"{python} is on a file system that machines share")
    if settings.mode == "site" or _is_shared(settings.pilot_log_dir):
        return [found]
    said = f"{settings.pilot_log_dir} is on a disk of this machine: pilots on other nodes cannot write there"
    return [found, warning("pilot_log_dir", said, "set it to a folder that the nodes share")]


def pilot_template(settings: Settings) -> list[Finding]:
    """A batch script of the site's own, which earlier versions may have been made for."""
    if not settings.pilot_template:
        return []
    path, check = Path(settings.pilot_template), "pilot_template"
    ours = f"jobscripts/{SCHEDULERS[settings.scheduler].template or 'slurm-pilot.sh.j2'}"
    try:
        text = read_text(path, MOST_KB)
    except (OSError, UnicodeDecodeError) as error:
        return [
            wrong(
                check,
                f"{path}: {getattr(error, 'strerror', None) or error}",
                f"make it readable, or leave {check} empty",
            )
        ]
    if "BFTRAINER_SECRET" in text or "secret" not in text:
        said = f"{path} does not give the secret on the agent's standard input"
        return [wrong(check, said, f"begin anew from {ours}")]
    return [ok(check, f"{path}; compare it with {ours} at each upgrade")]


def users_folders(settings: Settings) -> list[Finding]:
    """Return whether users could make others' folders below `trainer_dir`: no trainer starts in one that
    strangers made."""
    before, named, _ = settings.trainer_dir.partition("{user}")
    if settings.mode == "single" or not named or not before.startswith("/"):
        return []
    place, check = Path(f"{before}x").parent, "trainer_dir"
    try:
        other = danger(place / "x", None, strict=False, instead="/scratch")
        anybody = place.stat().st_mode & stat.S_IWOTH
    except OSError as error:
        return [not_checked(check, f"{place}: {error.strerror}; it may be on the nodes alone")]
    if other:
        return [wrong(check, other.said, other.remedy)]
    if anybody:
        said = f"a user may make another one's folder in {place}, whose trainers fail then"
        return [warning(check, said, f"have root make each user's, and say chmod o-w {place}")]
    return [ok(check, f"only root makes folders in {place}")]


def _is_shared(path: Path) -> bool:
    mount = mount_of(path)
    return mount is not None and mount.is_network
