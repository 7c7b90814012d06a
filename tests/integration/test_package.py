"""The wheel is whole: installed elsewhere, it runs and makes its database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CODE = """
import sys
from pathlib import Path
import bftrainer
from bftrainer.store.sql import SqlStore
assert Path(bftrainer.__file__).is_relative_to(sys.argv[1]), bftrainer.__file__
SqlStore(Path(sys.argv[1]) / "books.db").close()
assert (Path(bftrainer.__file__).parent / "store/migrations/script.py.mako").exists()
assert (Path(bftrainer.__file__).parent / "py.typed").exists()
assert "torch" not in sys.modules
"""


def test_the_wheel_works(tmp_path: Path) -> None:
    source = tmp_path / "source"
    tracked = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"],  # whoever owns the checkout
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("GIT_")},
    )
    for name in filter(None, tracked.stdout.split("\0")):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, source], check=True, timeout=300)
    (wheel,) = tmp_path.glob("bftrainer-*.whl")
    target = tmp_path / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", target, wheel], check=True, timeout=120)
    environ = {**os.environ, "PYTHONPATH": str(target)}
    subprocess.run([sys.executable, "-c", CODE, target], cwd=tmp_path, check=True, env=environ)

    def said(*words: str) -> str:
        command = [target / "bin" / "bftrainer", *words]
        done = subprocess.run(command, cwd=tmp_path, check=True, env=environ, capture_output=True, text=True)
        return done.stdout

    for name in (
        "bftrainer.service",
        "bftrainer-no-sudo.conf",
        "bftrainer-user.service",
        "grafana-dashboard.json",
    ):
        assert (target / "share" / "bftrainer" / "jobscripts" / name).is_file()
    assert "replay" in said("--help")
    assert "bftrainer.agent --node n7" in said("pilot", "--dry-run", "--node=n7", "--state-dir=state")
