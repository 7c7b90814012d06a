"""What keeps the house easy to find one's way in: sizes, docstrings, and packages that only hold rooms."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

import pytest

import bftrainer
from tests.support.house_allowed import CLASS_NAMES, INSPECTION

ROOT = Path(bftrainer.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if "versions" not in path.parts)
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
NAMES = {path: str(path.relative_to(ROOT)) for path in FILES}

MEDIAN_LINES, P90_LINES = 130, 350
MOST_IN_A_BODY, MOST_IN_A_CLASS = 50, 250
MOST_IN_A_FOLDER, FEW_LINES = 14, 40

ALIKE = ("cli", "traces/formats", "store/migrations")
"""Lists of alike things, one a module: they may be long, and each module is found by its name."""
QUESTIONS = ("What", "Whether", "That", "How", "Which", "Where")
INSPECTING = {
    "get_objects",
    "get_referents",
    "get_referrers",
    "getsource",
    "getsourcelines",
    "next_functions",
}

OFFERS = {
    f"{room}/__init__.py"
    for room in ("elastic", "elastic/lightning", "elastic/huggingface", "search", "allocate", "cli")
} | {"__init__.py"}
"""Packages that hold more than a sentence: what scripts import, the allocators, the command line's root."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(node: ast.AST) -> Iterator[Function]:
    """All functions and methods below a node."""
    return (found for found in ast.walk(node) if isinstance(found, Function))


def body_lines(function: Function) -> int:
    """Lines of the body without the docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0  # type: ignore[operator]


def public(node: ast.Module | ast.ClassDef, place: str) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """What others may use of a module or class: its public functions, classes and methods."""
    for found in node.body:
        if isinstance(found, Function | ast.ClassDef) and not found.name.startswith("_"):
            yield f"{place}:{found.name}", found
            if isinstance(found, ast.ClassDef):
                yield from public(found, f"{place}:{found.name}")


def declared() -> set[str]:
    """Methods whose meaning a port or a base class says, once for all that implement them."""
    places = ("ports.py", "api/service.py", "elastic/loop/observers.py")
    return {
        function.name
        for path, tree in TREES.items()
        for found in ast.walk(tree)
        if isinstance(found, ast.ClassDef)
        and (
            NAMES[path] in places
            or any(ast.unparse(base).startswith(("Protocol", "ABC")) for base in found.bases)
        )
        for function in found.body
        if isinstance(function, Function) and ast.get_docstring(function)
    }


def library() -> set[str]:
    """Methods that a library calls by names of its own."""
    return {"formatMessage", "formatException", "format", "convert", "shell_complete", "get_command"}


def test_files_are_small() -> None:
    lines = [path.read_text(encoding="utf-8").count("\n") for path in FILES]
    sizes = [count for path, count in zip(FILES, lines, strict=True) if path.name != "__init__.py"]
    assert median(sizes) <= MEDIAN_LINES
    assert quantiles(sizes, n=10)[-1] <= P90_LINES


def test_functions_and_classes_are_small() -> None:
    long = [
        f"{NAMES[path]}:{function.lineno} {function.name}: {body_lines(function)} lines"
        for path, tree in TREES.items()
        for function in functions(tree)
        if body_lines(function) > MOST_IN_A_BODY
    ]
    long += [
        f"{NAMES[path]}:{found.lineno} class {found.name}: {size} lines"
        for path, tree in TREES.items()
        for found in ast.walk(tree)
        if isinstance(found, ast.ClassDef)
        and (size := (found.end_lineno or 0) - found.lineno + 1) > MOST_IN_A_CLASS
    ]
    assert not long, "\n".join(long)


def test_what_is_public_says_what_it_does() -> None:
    said = declared() | library()
    mute = [
        name
        for path, tree in TREES.items()
        for name, found in public(tree, NAMES[path])
        if not ast.get_docstring(found)
        and not found.name.startswith("test_")
        and not (name.count(":") > 1 and found.name in said)
    ]
    assert not mute, f"{len(mute)} without a docstring:\n" + "\n".join(mute)


def test_everything_is_typed() -> None:
    bare = [
        f"{NAMES[path]}:{function.lineno} {function.name}"
        for path, tree in TREES.items()
        for function in functions(tree)
        if function.returns is None
        or any(
            a.annotation is None and a.arg not in ("self", "cls")
            for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        )
    ]
    assert not bare, "\n".join(bare)


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "__init__.py"], ids=lambda p: NAMES[p])
def test_a_package_is_a_folder_with_a_sentence(path: Path) -> None:
    tree = TREES[path]
    assert ast.get_docstring(tree), "says what the room is"
    if NAMES[path] not in OFFERS:
        assert len(tree.body) == 1, "names are imported from where they are defined"


def room(path: Path) -> str:
    """The folder of a module, relative to the package."""
    return str(path.parent.relative_to(ROOT))


def holds_only(found: set[str], allowed: frozenset[str]) -> None:
    """Fail for what is found beside the list, and for what the list need no longer have."""
    assert not found - allowed, "breaks the rule:\n" + "\n".join(sorted(found - allowed))
    assert not allowed - found, "take out of the list:\n" + "\n".join(sorted(allowed - found))


def test_a_folder_has_few_modules() -> None:
    """A fifteenth module needs a sub-folder, whose sentence says what is in it."""
    sizes = Counter(room(path) for path in FILES if path.name != "__init__.py" and room(path) not in ALIKE)
    assert not {name: size for name, size in sizes.items() if size > MOST_IN_A_FOLDER}


def test_no_two_public_classes_have_one_name() -> None:
    names = Counter(
        found.name
        for tree in TREES.values()
        for found in tree.body
        if isinstance(found, ast.ClassDef) and not found.name.startswith("_")
    )
    holds_only({name for name, count in names.items() if count > 1}, CLASS_NAMES)


def importers() -> dict[str, set[str]]:
    """Module -> the folders of the modules that import it, or a name from it."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for path, tree in TREES.items():
        package = ["bftrainer", *path.parent.relative_to(ROOT).parts]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                start = ".".join([*above, *([node.module] if node.module else [])])
                names = [start, *(f"{start}.{alias.name}" for alias in node.names)]
            else:
                continue
            for name in names:
                rooms[name].add(room(path))
    return rooms


def test_a_small_module_serves_several_folders() -> None:
    """One that serves a single folder belongs to one of the modules that import it."""
    rooms = importers()
    small = {
        NAMES[path]
        for path in FILES
        if path.name not in ("__init__.py", "__main__.py")
        and room(path) not in ALIKE
        and path.read_text(encoding="utf-8").count("\n") < FEW_LINES
        and len(rooms[".".join(("bftrainer", *path.relative_to(ROOT).with_suffix("").parts))]) < 2
    }
    assert not small, "belongs to its one importer:\n" + "\n".join(sorted(small))


def inspects(tree: ast.Module) -> bool:
    """Does a module look into bytecode, source, all objects or autograd's own fields?"""
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    fields = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    modules = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [*(alias.name for alias in node.names), getattr(node, "module", None)]
    }
    own = any(name.startswith(("_saved_self", "_saved_other", "_saved_reduction")) for name in named | fields)
    return own or "dis" in modules or bool(INSPECTING & (named | modules))


def test_elastic_does_not_inspect_scripts() -> None:
    """What a script does is seen by its effects: its code may be compiled, wrapped or another's."""
    holds_only(
        {NAMES[p] for p, tree in TREES.items() if NAMES[p].startswith("elastic/") and inspects(tree)},
        INSPECTION,
    )


def test_a_module_says_what_it_is_or_does() -> None:
    """By a noun or a verb in the third person, not by a question that the reader would have to complete."""
    assert not [
        NAMES[path]
        for path, tree in TREES.items()
        if (ast.get_docstring(tree) or "").replace("'", " ").replace(",", " ").split(" ")[0] in QUESTIONS
    ]


def test_docstrings_have_todays_words() -> None:
    """Phrases that a reader has to read twice; `at most`, `again`, `anyway` say the same."""
    written = re.compile(r"\b(so many|anew|of ours|all the same|it is none)\b")
    texts = [
        (NAMES[path], node.value.value)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    assert not [
        f"{name}: {found[0]}"
        for name, text in texts
        if isinstance(text, str) and (found := written.search(text))
    ]


def test_no_two_test_files_have_one_name() -> None:
    """Without packages pytest imports them by name: the second could not be collected."""
    names = Counter(path.name for path in (ROOT.parent / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
