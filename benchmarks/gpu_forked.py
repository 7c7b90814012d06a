"""CUDA in a fork of a process that has made an import: gpu_forked.py DEVICE 'import statement'.

The import is made as a warm process makes it for a script; prints what came of it. Exit code 1: the fork
cannot compute on the device, and the warm process has not found out that it must not fork.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch

from bftrainer.elastic.programs.preload import import_for


def main() -> None:
    """Import, fork, compute in the fork, and say how it went."""
    device, statement = sys.argv[1:]
    package = statement.split()[1].partition(".")[0]
    with tempfile.TemporaryDirectory(prefix="gpu-") as where:
        script = Path(where, "script.py")
        script.write_text(statement + "\n")
        try:
            import_for(str(script))
        except SystemExit:
            print("refused: the import starts threads or opens a device, so that workers start by themselves")
            os._exit(0)
    if package not in sys.modules:
        print("not installed")
        os._exit(0)
    fork = os.fork()
    if fork == 0:
        product = torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)
        os._exit(0 if product[0, 0].item() == 64 else 2)
    code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
    print("works" if code == 0 else f"the fork ended with {code}")
    sys.stdout.flush()
    os._exit(code != 0)


if __name__ == "__main__":
    main()
