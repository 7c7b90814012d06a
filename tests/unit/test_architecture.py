"""Who may import whom, read from the source, and what starting the command line costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bftrainer

ROOT = Path(bftrainer.__file__).parent
TOPS = {path.stem for path in ROOT.glob("*.py")} | {path.name for path in ROOT.iterdir() if path.is_dir()}

CORE = {"errors", "model", "curve", "pool", "objective"}
EDGE = {"errors", "model", "ports"}

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "secret": set(),
    "model": {"errors"},
    "curve": {"errors", "model"},
    "pool": {"errors", "model"},
    "objective": {"errors", "model", "curve"},
    "allocate": CORE,
    "survival": {"errors", "model", "curve"},
    "learn": {"errors", "model", "curve"},
    "backlog": {"errors", "model"},
    "beliefs": {"errors", "model", "curve", "learn"},
    "engine": CORE | {"allocate", "survival", "backlog", "learn", "beliefs"},
    "ports": {"errors", "model"},
    "vacate": {"errors", "model", "curve"},
    "pilots": EDGE | {"secret"},
    "schedulers": EDGE,
    "launch": EDGE,
    "store": EDGE,
    "api": EDGE | {"secret"},
    "agent": {"errors", "model", "secret"},
    "spec": {"errors", "model", "curve"},
    "settings": {"errors", "model", "objective"},
    "reload": {"settings"},
    "log": set(),
    "systemd": set(),
    "telemetry": {"errors", "model", "ports", "api", "log"},
    "replay": CORE | {"allocate", "engine", "spec", "settings", "ports", "store"},
}
"""Module or package of bftrainer -> what of bftrainer it may import, itself aside. Missing: anything."""

FOR_TORCH = {"elastic"}
COMPOSERS = {"daemon", "nodes", "recovery", "service", "serve", "replay"}
"""What puts parts together; `nodes`, `recovery` and `service` are parts of the daemon, `serve` runs one."""

ON_TOP = {"cli", "__main__", "testing"}
"""Nothing below imports these."""


def modules(top: str) -> list[Path]:
    """The source files of a module or package; none where it does not exist yet."""
    single = ROOT / f"{top}.py"
    return [single] if single.exists() else sorted((ROOT / top).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Every dotted name that a file imports, anywhere in it; `from a import b` gives a.b."""
    package = ["bftrainer", *path.relative_to(ROOT).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def tops(path: Path) -> set[str]:
    """The modules and packages of bftrainer that a file imports from."""
    names = [name.split(".") for name in imported(path)]
    return {parts[1] for parts in names if parts[0] == "bftrainer" and len(parts) > 1 and parts[1] in TOPS}


def test_the_reader_of_imports_sees_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / "replay" / "x.py"
    path.parent.mkdir()
    path.write_text(
        "import bftrainer.curve, torch.nn\nfrom bftrainer import engine, __version__\n"
        "from ..pool import Pool\nfrom . import run\ndef f():\n    from bftrainer.cli.replay import command\n"
    )
    assert tops(path) == {"curve", "engine", "pool", "replay", "cli"}
    assert "torch.nn" in set(imported(path))


@pytest.mark.parametrize("top", ALLOWED)
def test_imports_go_in_one_direction(top: str) -> None:
    for path in modules(top):
        beyond = tops(path) - ALLOWED[top] - {top}
        assert not beyond, f"{path.relative_to(ROOT)} imports {sorted(beyond)}"


def test_the_engine_and_those_above_it_are_known_to_few() -> None:
    for path in ROOT.rglob("*.py"):
        top = path.relative_to(ROOT).parts[0].removesuffix(".py")
        above = set() if top in ON_TOP else ON_TOP if top in COMPOSERS else ON_TOP | COMPOSERS | {"engine"}
        found = tops(path) & (above - {top})
        assert not found, f"{path.relative_to(ROOT)} imports {sorted(found)}"


def test_only_elastic_needs_torch() -> None:
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] not in FOR_TORCH:
            frameworks = {name.split(".")[0] for name in imported(path)} & {"torch", "horovod"}
            assert not frameworks, f"{path.relative_to(ROOT)} imports {sorted(frameworks)}"


@pytest.mark.parametrize(
    "script",
    [
        "import bftrainer",
        "import bftrainer.engine, bftrainer.settings, bftrainer.spec, bftrainer.allocate",
        "import sys; sys.argv = ['bftrainer', '--help']\n"
        "from bftrainer.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end",
    ],
    ids=["package", "core", "help"],
)
def test_starting_imports_neither_torch_nor_the_solver(script: str) -> None:
    check = "\nimport sys\nprint('HEAVY', sorted({'torch', 'pyomo', 'highspy'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script + check], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "HEAVY []"
