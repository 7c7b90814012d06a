"""Where the job scripts and unit files are that come with bftrainer: in a checkout or where pip put them."""

from __future__ import annotations

from pathlib import Path

from bftrainer.errors import BftrainerError


def find(name: str) -> Path:
    """The file `name` of the folder jobscripts.

    Raises:
        BftrainerError: it is not installed.
    """
    package = Path(__file__).absolute().parents[2]
    checkout = package.parent / "jobscripts" / name
    installed = (above / "share" / "bftrainer" / "jobscripts" / name for above in package.parents)
    for path in (checkout, *installed):
        if path.is_file():
            return path
    raise BftrainerError(f"{name} is neither in {checkout.parent} nor in a share/bftrainer above {package}")
