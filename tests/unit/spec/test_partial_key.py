"""The spec's key `partial`: what workers get of it, and what does not go with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.elastic.partial.options import Partial, overridden
from bftrainer.errors import BftrainerError
from bftrainer.spec.parse import parse

SPEC = "name: a\ncommand: [python, a.py]\nnodes: {max: 2}\n"
OWN = Partial(lr="none", warmup_steps=7)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", OWN),
        ("partial: true", OWN),
        ("partial: false", None),
        ("partial: {by: [body, head]}", Partial(by=("body", "head"), lr="none", warmup_steps=7)),
        ("partial: {lr: share, warmup_epochs: 2}", Partial(lr="share", warmup_steps=7, warmup_epochs=2)),
    ],
)
def test_a_spec_goes_before_the_script(written: str, expected: Partial | None) -> None:
    spec = parse(SPEC + written, "a.yaml", Path())
    assert overridden(OWN, dict(spec.partial)) == expected


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("partial: {by: depth}", "partial"),
        ("partial: {by: []}", "partial"),
        ("partial: {warmup_steps: -1}", "warmup_steps"),
        ("partial: true\nlauncher: torchrun", "launcher: torchrun"),
        ("partial: true\nbatch: {initial: 8, max: 64}", "noise"),
    ],
)
def test_what_cannot_be_meant_is_refused(written: str, words: str) -> None:
    with pytest.raises(BftrainerError, match=words):
        parse(SPEC + written, "a.yaml", Path())
