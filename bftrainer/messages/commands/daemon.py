"""Refusals of the daemon: of what a user orders, or asks."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

NO_ADMIN = Diagnostic(
    230,
    "{user} is no admin here",
    "Ask an admin to do it",
    "Orders for the whole site, and how long main jobs waited, are for admins only. The setting `admins` "
    "names them.",
)
NOT_RUN_HERE = Diagnostic(
    231,
    "trainers of {user} are not run here",
    "Submit as yourself",
    "In mode site, programs run as the user who submits them. The daemon starts none as root, and none as "
    "its own account: see [Site mode](site-mode.md).",
)
SEVERAL_OWNERS = Diagnostic(
    232,
    "several users have a {kind} {name!r}",
    "Name it by its number: {which}",
    "Names are unique among what one user has running. Admins see what all users have.",
)
UNKNOWN = Diagnostic(
    233,
    "no {kind} {name!r}",
    "Give a name or a number that bftrainer {command} shows",
    "You see trainers and studies of your own only, and admins see all. Names are told apart by capitals.",
)
OVER = Diagnostic(
    234,
    "{what} has ended ({how}), and takes no such orders",
    "Submit a new one with {option}: {gain}",
    "Its results and checkpoints stay. Nothing of it runs or waits any more.",
)
TOO_OFTEN = Diagnostic(
    235,
    "you have sent more than {most} specs and orders in a minute, refused ones included",
    "Try again in {wait:.0f} s (max_submits_per_minute)",
    "Each spec and each order costs the daemon a plan. For many trainers that differ in values, submit one "
    "study: see [Studies](studies.md).",
)
MOST_OF_A_USER = Diagnostic(
    236,
    "{count} {what}, the most for one user{setting}",
    "Wait until one is over, or end one",
    "A bound for each user keeps room for the others. An admin can raise those that name a setting.",
)
MOST_OF_ALL = Diagnostic(
    237,
    "{count} {what}, the most here{setting}",
    "Try again later",
    "A bound for all users together keeps the daemon quick. An admin can raise those that name a setting.",
)
ABOVE_CLAIM = Diagnostic(
    238,
    "{what}: {value:g} is above {most:g}, the most here",
    "Lower it, or ask an admin (max_{what})",
    "Weight and priority decide who gets nodes. The site bounds what users give themselves.",
)
PRIORITY = Diagnostic(
    239,
    "priority: {given:g} is not above 0 and up to {most:g}",
    "Give a number between",
    "A trainer's gain is multiplied by its priority, so 0 would say that it needs no nodes.",
)
SPEC_PATH = Diagnostic(
    240,
    "{key}: {why}",
    "Submit the file from a folder with a plain, shorter path",
    "The daemon keeps the name of a spec and the whole path of its folder: relative paths in the spec start "
    "there. It shows both on terminals.",
)
DAEMONS_OWN_FILE = Diagnostic(
    241,
    "{key}: {path} is in the daemon's state_dir",
    "Give a file elsewhere",
    "The daemon keeps its own database there, and nothing else may write to it.",
)
STILL_WRITING = Diagnostic(
    242,
    "workers of {who} still write what they have",
    "Try again in a few seconds",
    "A trainer goes on from checkpoints of an earlier one when the last of these is whole.",
)
CHECKPOINTS_IN_USE = Diagnostic(
    243,
    "{who} has not ended, and uses these checkpoints",
    "Cancel it first: bftrainer cancel {id}",
    "Two trainers that write the same checkpoints would destroy each other's.",
)
OTHER_CHECKPOINTS = Diagnostic(
    244,
    "checkpoint.dir: {given}: {who} has its checkpoints in {folder}",
    "Leave checkpoint.dir out",
    "A trainer that goes on from an earlier one takes over its folder of checkpoints.",
)
ORDER_TAKEN = Diagnostic(
    245,
    "the order is taken, and studies are busy",
    "See what came of it with bftrainer study show {id}",
    "The daemon works on studies one after the other. It had no time to say how this one stands.",
)
LATE = Diagnostic(
    246,
    "{what} {limit:g} s",
    "Try again later",
    "The daemon gives an answer up that takes too long, so that others get theirs. The disk with its "
    "`state_dir` may be slow at the moment.",
)
NAME_TAKEN = Diagnostic(
    247,
    "an unfinished {kind} is called {name!r}",
    "Choose another name, or end that one first: bftrainer {command} {other}",
    "Commands find a trainer or a study by its name, so a user has each name once at a time.",
)
NOT_STORED = Diagnostic(
    248,
    "the store does not answer, and the study was cancelled",
    "Submit it again later",
    "What the daemon cannot store would be lost at its next start. The disk with its `state_dir` is slow, or "
    "full.",
)
LAUNCHER_LACKS = Diagnostic(
    249,
    "launcher: {launcher}: the daemon's Python has no {package}",
    "Ask its admin to install it beside the daemon, or take launcher: native",
    "The daemon itself hosts the store at which torchrun's processes meet, and Horovod's driver. Both need "
    "the package on the daemon's machine, not only on the nodes.",
)
