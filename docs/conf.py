"""Configures Sphinx, which makes the site of these pages: `make docs`."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

import bftrainer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
FRONT, LIST = "README", Path("docs/README.md")

project = "bftrainer"
version = release = bftrainer.__version__
author = "the bftrainer authors"
language = "en"

# Pages refer to files beside docs/ (SECURITY.md, trainers/): the source is the whole checkout
root_doc = FRONT
include_patterns = ["*.md", "docs/**", "slurm/README.md", "lsf/README.md"]
exclude_patterns = ["build/**", "docs/conf.py"]
extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]
suppress_warnings = ["toc.not_included", "misc.highlighting_failure"]

html_theme = "furo"
html_title = f"bftrainer {release}"
html_show_sourcelink = False
html_copy_source = False
html_search_scorer = str(Path(__file__).with_name("search_scorer.js"))
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True


def _with_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Adds the navigation to the front page: each heading of the list of pages, with the pages below it."""
    if name != FRONT:
        return
    listed = (ROOT / LIST).read_text(encoding="utf-8")
    for part in re.split(r"(?m)^(?:## |(?=\*\*))", listed)[1:]:
        caption, _, rest = part.partition("\n")
        paths = re.findall(r"\]\(([\w./-]+\.md)\)", rest)
        pages = dict.fromkeys(posixpath.normpath(f"{LIST.parent}/{path}") for path in paths)
        if pages:
            options = (":hidden:", f":caption: {caption.strip('* ')}")
            source[0] += "\n".join(["", "```{toctree}", *options, "", *pages, "```", ""])


def _with_a_way_in(app: Sphinx, error: Exception | None) -> None:
    """Leads from the site's folder to its front page."""
    if error is None:
        way_in = f'<!doctype html><meta http-equiv="refresh" content="0; url={FRONT}.html">\n'
        (Path(app.outdir) / "index.html").write_text(way_in, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Called by Sphinx: the list of pages stands once, in the page that people read on a code host, too."""
    app.connect("source-read", _with_contents)
    app.connect("build-finished", _with_a_way_in)
