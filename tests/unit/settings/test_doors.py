"""Every place that takes in what somebody else has written is in the table of docs/contributing/doors.md."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import bftrainer
from bftrainer.settings.doors import DOORS, Deed
from bftrainer.settings.setting import facts
from bftrainer.settings.values import SECTIONS

ROOT = Path(bftrainer.__file__).parent
CALLS: dict[str, Deed] = {
    **dict.fromkeys(("range", "product", "linspace", "arange"), Deed.EXPANDED),
    **dict.fromkeys(("json.loads", "json.load", "yaml.parse", "yaml.load", "safe_load"), Deed.PARSED),
    **dict.fromkeys(("model_validate", "model_validate_json", "validate_python"), Deed.PARSED),
    **dict.fromkeys(("ast.parse", "literal_eval", "csv.reader", "csv.DictReader"), Deed.PARSED),
    **dict.fromkeys(("re.match", "re.fullmatch", "re.search", "re.split", "re.sub"), Deed.MATCHED),
    **dict.fromkeys(("fullmatch", "findall", "finditer"), Deed.MATCHED),
    **dict.fromkeys(("resolve", "realpath", "readlink", "exists", "expanduser"), Deed.RESOLVED),
    **dict.fromkeys(("stat", "lstat", "is_dir", "is_file", "iterdir", "glob", "rglob"), Deed.RESOLVED),
    **dict.fromkeys(("listdir", "scandir", "walk", "read_text", "read_bytes"), Deed.RESOLVED),
    **dict.fromkeys(("os.open", "os.access", "open_regular"), Deed.RESOLVED),
    **dict.fromkeys(("pickle.loads", "pickle.load", "torch.load", "pickle.Unpickler"), Deed.UNPICKLED),
    **dict.fromkeys(("all_gather_object", "gather_object", "recv_object_list"), Deed.UNPICKLED),
    **dict.fromkeys(("broadcast_object_list", "scatter_object_list"), Deed.UNPICKLED),
    **dict.fromkeys(("json_response", "StreamResponse", "encoded", "Answer"), Deed.ANSWERED),
}
"""What is called -> what that does with a text. With a dot: as it stands there, else under any name."""
ONLY = {
    Deed.EXPANDED: ("spec/", "search/", "schedulers/", "api/", "wire/", "model/nodes"),
    Deed.ANSWERED: ("api/", "daemon/"),
}
"""Where calls of such names are about somebody's text; elsewhere, they are about numbers."""
COMPILED = ("match", "search", "sub", "split")
"""Methods of a compiled expression, which stands in a constant in capitals."""


def deeds(path: Path) -> Iterator[Deed]:
    """What a source file does with texts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call | ast.ClassDef):
            continue
        called = [
            ast.unparse(each) for each in (node.bases if isinstance(node, ast.ClassDef) else [node.func])
        ]
        for name in called:
            *owner, last = name.rsplit(".", 1)
            if name in CALLS or last in CALLS:
                yield CALLS.get(name) or CALLS[last]
            elif last in COMPILED and owner and owner[0].rsplit(".", 1)[-1].isupper():
                yield Deed.MATCHED


def found() -> dict[str, set[Deed]]:
    """All modules of the package that do something with texts."""
    every: dict[str, set[Deed]] = defaultdict(set)
    for path in sorted(ROOT.rglob("*.py")):
        module = str(path.relative_to(ROOT))
        for deed in deeds(path):
            if module.startswith(ONLY.get(deed, "")):
                every[module].add(deed)
    return dict(every)


FOUND = found()


@pytest.mark.parametrize("module", FOUND)
def test_a_module_that_takes_in_texts_is_in_the_table(module: str) -> None:
    named = {
        deed for door in DOORS if any(fnmatchcase(module, own) for own in door.modules) for deed in door.deeds
    }
    lacking = ", ".join(sorted(FOUND[module] - named))
    assert not lacking, (
        f"{module}: texts are {lacking} here, and no row of bftrainer/settings/doors.py says so: name the "
        "bound and the thread there, then `make docs`"
    )


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.what[:40])
def test_no_row_speaks_of_what_is_gone(door: object) -> None:
    done: set[Deed] = set()
    for own in door.modules:  # type: ignore[attr-defined]
        modules = [module for module in FOUND if fnmatchcase(module, own)]
        assert modules, f"{own} takes in nothing; take it out of the row"
        done |= {deed for module in modules for deed in FOUND[module]}
    assert set(door.deeds) <= done  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", sorted(ROOT.glob("api/*routes.py")), ids=lambda path: path.stem)
def test_no_handler_of_the_api_walks_through_what_a_body_holds(module: Path) -> None:
    handlers = [
        node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.AsyncFunctionDef)
    ]
    assert handlers
    walking = [
        own.name
        for own in handlers
        for node in ast.walk(own)
        if isinstance(node, ast.While)
        or (
            isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)
            and not isinstance(node.iter, ast.Tuple)
        )
    ]
    assert not walking, f"{walking} runs in the event loop; have a thread of users' work go through it"


def test_bounds_that_are_settings_exist() -> None:
    known = {name for section in SECTIONS for name in facts(section)}
    named = {word for door in DOORS for word in door.bound.split("`")[1::2]}
    assert named <= known
