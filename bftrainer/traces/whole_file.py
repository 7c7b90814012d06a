"""Files that appear when they are complete: a reader never finds half of one."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bftrainer.files import held


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """The draft to write to. It takes the place of `path` at the end, unless there is an error. It lies in a
    folder of its own beside `path`: others may write there, too, and have put links under any name.

    Raises:
        OSError: what is at `path` is no regular file but, say, a device, which root could replace; or no
            draft can be made there.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file")
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        with held(folder) as private:
            if private.stat().st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "another user has exchanged the folder of the draft")
            draft = private / "draft"
            try:
                yield draft
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
    finally:
        with suppress(OSError):
            folder.rmdir()
