"""A small file of the user's own with the scripts that were tried: for a hint, and nothing more."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from bftrainer.model.trainer import TrainerSpec
from bftrainer.settings.client.places import default_state_dir
from bftrainer.spec.command_line import script_of

FILE = "bftrainer-tried"
MOST = 10_000
"""Scripts to remember."""


def hint(spec: TrainerSpec, path: Path) -> str:
    """Hint for a script that was never tried, the first time that it is submitted; else empty."""
    if spec.n_max < 2 or _key(spec) in _known():
        return ""
    note(spec)
    return (
        f"its script was never tried: `bftrainer try {path}` shows whether nodes that come and go change "
        "its result"
    )


def note(spec: TrainerSpec) -> None:
    """Remember a script. A file that cannot be written hinders nothing."""
    known = _known()
    with contextlib.suppress(OSError):
        path = _path()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = [*(key for key in known if key != _key(spec)), _key(spec)][-MOST:]
        path.write_text("".join(f"{key}\n" for key in kept), encoding="ascii")


def _path() -> Path:
    return default_state_dir().parent / FILE


def _known() -> list[str]:
    try:
        return _path().read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []


def _key(spec: TrainerSpec) -> str:
    where = Path(spec.workdir, script_of(spec.command)).absolute()
    return hashlib.blake2b(str(where).encode(errors="replace"), digest_size=8).hexdigest()
