"""bftrainer explain"""

from __future__ import annotations

import re

import click
from click.shell_completion import CompletionItem

from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say
from bftrainer.messages.catalogue import CATALOGUE
from bftrainer.messages.commands.lines import NO_MESSAGE
from bftrainer.messages.diagnostic import Diagnostic, shown


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    begun = incomplete.upper()
    return [
        CompletionItem(name, help=shown(message.text)[:80])
        for name, message in CATALOGUE.items()
        if name.startswith(begun)
    ]


@click.command("explain")
@click.argument("message_id", metavar="ID", shell_complete=_complete)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(message_id: str, as_json: bool) -> None:
    """Say what a message with an ID such as BFT-101 means, and what to do."""
    found = _known(message_id)
    fields = {
        "id": found.id,
        "text": f"{shown(found.text)}.",
        "cure": f"{shown(found.cure)}.",
        "cause": re.sub(r"\[([^]]+)\]\(([^)]+)\)", r'"\1" (docs/\2)', shown(found.cause)),
    }
    if as_json:
        print_json(fields)
        return
    say(f"{fields['id']}: {fields['text']}\n\nWhat to do: {fields['cure']}\n\nWhy: {fields['cause']}")


def _known(message_id: str) -> Diagnostic:
    """The message of an id, which may lack its letters or be in small ones.

    Raises:
        click.UsageError: there is none.
    """
    number = re.fullmatch(r"(?:BFT-?)?(\d{3})", message_id, re.IGNORECASE)
    found = CATALOGUE.get(f"BFT-{number[1]}") if number else None
    if found is None:
        raise click.UsageError(
            NO_MESSAGE.say(given=message_id[:20], first=min(CATALOGUE), last=max(CATALOGUE))
        )
    return found
