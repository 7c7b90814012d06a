"""Who may import whom, read from the source, and what starting the command line costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import bftrainer

ROOT = Path(bftrainer.__file__).parent
TOPS = {path.stem for path in ROOT.glob("*.py")} | {path.name for path in ROOT.iterdir() if path.is_dir()}

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "messages": set(),
    "background": set(),
    "elsewhere": set(),
    "files": set(),
    "nodesets": set(),
    "yaml_files": {"files", "messages", "model"},
    "threads": {"errors", "messages"},
    "model": set(),
    "ports": {"errors", "model"},
    "performance": {"errors", "messages", "model"},
    "allocate": {"errors", "messages", "model", "performance"},
    "iterations": set(),
    "engine": {"errors", "messages", "model", "performance", "allocate"},
    "wire": {"errors", "files", "messages", "model"},
    "nodes": {"background", "errors", "model", "ports", "performance", "wire", "settings", "telemetry"},
    "schedulers": {
        "errors",
        "files",
        "messages",
        "model",
        "nodesets",
        "ports",
        "settings",
        "threads",
        "traces",
    },
    "launch": {"errors", "files", "messages", "model", "ports", "wire"},
    "agent": {"errors", "files", "messages", "model", "threads", "wire"},
    "elastic": {"errors", "files", "messages", "performance"},
    "state_dir": {"errors", "files", "messages"},
    "store": {"errors", "messages", "model", "nodesets"},
    "settings": {"messages", "errors", "nodesets", "yaml_files", "model", "allocate"},
    "spec": {"errors", "files", "messages", "yaml_files", "model", "performance", "threads"},
    "telemetry": {"errors", "messages", "model"},
    "api": {"errors", "messages", "model", "threads", "wire"},
    "traces": {"errors", "files", "messages", "model", "nodesets"},
    "recording": {"errors", "files", "messages", "model", "nodesets", "ports", "traces"},
    "replay": {
        *("errors", "model", "ports", "performance", "allocate", "engine", "iterations"),
        *("files", "messages", "spec", "settings", "store", "traces", "yaml_files"),
    },
    "daemon": {
        *("errors", "model", "ports", "performance", "allocate", "engine", "nodes", "schedulers", "wire"),
        *("launch", "store", "spec", "settings", "state_dir", "telemetry", "threads", "api", "traces"),
        *("background", "messages", "search"),
    },
    "sitecheck": {"errors", "files", "model", "settings", "state_dir", "api"},
    "series": {"errors", "messages", "model", "traces"},
    "remote": {"api", "settings"},
    "worker_output": {"errors", "files", "messages", "state_dir"},
    "web": {"api", "errors", "messages", "worker_output"},
    "search": {
        *("errors", "files", "messages", "model", "performance", "remote", "spec", "threads", "traces"),
        "yaml_files",
    },
    "demo": {"api", "errors", "files", "messages", "series", "settings", "traces"},
    "rehearsal": {"errors", "messages", "model", "api", "demo", "elastic", "settings", "spec"},
}
"""Module or package of bftrainer -> what of bftrainer it may import, itself aside. `cli`, `__main__` and
`testing` stand above all others, which none of these imports."""

FOR_TORCH = {"elastic"}


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
        "import bftrainer.model.trainer, torch.nn\nfrom bftrainer import engine, __version__\n"
        "from ..nodes import Pool\nfrom . import run\n"
        "def f():\n    from bftrainer.cli.replay import command\n"
    )
    assert tops(path) == {"model", "engine", "nodes", "replay", "cli"}
    assert "torch.nn" in set(imported(path))


@pytest.mark.parametrize("top", ALLOWED)
def test_imports_go_in_one_direction(top: str) -> None:
    for path in modules(top):
        beyond = tops(path) - ALLOWED[top] - {top}
        assert not beyond, f"{path.relative_to(ROOT)} imports {sorted(beyond)}"


def test_every_room_has_its_place_in_the_order() -> None:
    assert {"cli", "__main__", "__init__", "testing", *ALLOWED} == TOPS - {"__pycache__", "py"}


def known(name: str) -> str | None:
    """The module that a dotted name is, or is in."""
    parts = name.split(".")
    for end in range(len(parts), 1, -1):
        path = ROOT.joinpath(*parts[1:end])
        if path.with_suffix(".py").exists():
            return ".".join(parts[:end])
    return f"{name}.__init__" if (ROOT.joinpath(*parts[1:]) / "__init__.py").exists() else None


def test_no_module_imports_in_a_circle() -> None:
    """Neither at the top nor within a function, nor for types only."""
    graph = {
        ".".join(("bftrainer", *path.relative_to(ROOT).with_suffix("").parts)): {
            found for name in imported(path) if (found := known(name)) is not None
        }
        for path in ROOT.rglob("*.py")
    }
    for name, below in graph.items():
        below.discard(name)
    list(TopologicalSorter(graph).static_order())


def test_only_elastic_needs_torch() -> None:
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] not in FOR_TORCH:
            frameworks = {name.split(".")[0] for name in imported(path)} & {"torch", "horovod"}
            assert not frameworks, f"{path.relative_to(ROOT)} imports {sorted(frameworks)}"


@pytest.mark.parametrize(
    "script",
    [
        "import bftrainer",
        "import bftrainer.engine.step, bftrainer.settings.sources, bftrainer.spec.parse, bftrainer.allocate",
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


def test_commands_and_the_daemon_run_where_torch_is_not_installed() -> None:
    script = """
import importlib, pkgutil, sys
sys.modules["torch"] = None
import bftrainer
from bftrainer.elastic import attach
for module in pkgutil.walk_packages(bftrainer.__path__, "bftrainer."):
    others = ("bftrainer.elastic.", "bftrainer.testing", "bftrainer.store.migrations")
    if not module.name.startswith(others) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
