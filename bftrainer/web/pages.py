"""The page's files: as the server sends them, and as one HTML file that shows a replay without a server."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from importlib import resources
from pathlib import Path

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MODULES = ("dom.js", "feed.js", "draw.js", "node_tables.js", "nodes.js", "record.js")
"""The scripts that show a record, each after those that it imports; no two have a name in common."""
IMPORT = re.compile(r"(?m)^import .*\n")
EXPORT = re.compile(r"(?m)^export ")
BEGIN = """
const dark = matchMedia("(prefers-color-scheme: dark)");
const place = document.getElementById("main");
const shown = recorded(JSON.parse(document.getElementById("record").textContent), place);
function show() { document.documentElement.dataset.theme = dark.matches ? "dark" : "light"; shown.update(); }
dark.addEventListener("change", show);
addEventListener("resize", show);
show();
"""


def files() -> dict[str, tuple[str, bytes]]:
    """Return the page's files: address -> type and bytes. No path of a request leads to a file."""
    found = {}
    for file in (resources.files("bftrainer.web") / "page").iterdir():
        kind = TYPES.get(Path(file.name).suffix)
        if kind:
            found[f"/{file.name}"] = (f"{kind}; charset=utf-8", file.read_bytes())
    return {**found, "/": found["/index.html"]}


def one_file(title: str, record: bytes) -> str:
    """Return an HTML file that shows a record (JSON). Its policy allows its own script and style alone."""
    known = files()
    scripts = (known[f"/{name}"][1].decode() for name in MODULES)
    script = "".join(EXPORT.sub("", IMPORT.sub("", text)) for text in scripts) + BEGIN
    style = known["/page.css"][1].decode()
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}"
    data = record.decode().replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n"
        f'<main id="main"></main>\n<script type="application/json" id="record">{data}</script>\n'
        f'<script type="module">{script}</script>\n'
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
