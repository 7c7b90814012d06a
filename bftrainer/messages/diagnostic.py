"""A refusal or warning with its id, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A refusal or a warning: templates in the form of `str.format`, with a name for each value.

    `text` says what is wrong, from a small letter on; `cure` what to do next, as sentences; `cause` why it is
    wrong, which the page alone tells. Texts and cures have no full stop at the end.
    """

    number: int
    text: str
    cure: str
    cause: str

    @property
    def id(self) -> str:
        """The id, such as "BFT-101"; it is never given to another one."""
        return f"BFT-{self.number}"

    def say(self, **values: object) -> str:
        """The whole message: what is wrong, what to do, and the command that tells more."""
        return ". ".join(self.parts(**values))

    def ends(self, text: str) -> str:
        """Words of others that say what is wrong and what to do, with the command that tells more."""
        return text if "(bftrainer explain " in text else f"{text} (bftrainer explain {self.id})"

    def parts(self, **values: object) -> tuple[str, str]:
        """What is wrong, and what to do with the command that tells more."""
        return self.text.format(**values), f"{self.cure.format(**values)} (bftrainer explain {self.id})"


def shown(template: str) -> str:
    """A template as a reader sees it who has no values: <name> stands for each."""
    return "".join(
        literal + (f"<{name}>" if name is not None else "")
        for literal, name, _, _ in Formatter().parse(template)
    )
