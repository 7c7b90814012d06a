"""Reasons why a command gets no answer of a daemon."""

from __future__ import annotations

from bftrainer.messages.diagnostic import Diagnostic

NO_DAEMON = Diagnostic(
    440,
    "no daemon answers at {where}",
    "Start one with: bftrainer daemon (without Slurm: bftrainer daemon --scheduler local). Or name another "
    "--state-dir",
    "Commands find the daemon by a socket in its `state_dir`. No daemon runs there, or it runs on another "
    "machine.",
)
NO_SERVER = Diagnostic(
    441,
    "no daemon answers at the server {where}",
    "Check the setting server: it names what listen_users says on the daemon's machine",
    "The daemon is not running, the address is another one, or a firewall lets nothing through.",
)
NOT_FOR_YOU = Diagnostic(
    442,
    "the daemon at {where} is not for you: its socket is its owner's",
    "Start a daemon of your own with another --state-dir, or ask the owner for site mode",
    "A daemon serves its own user. One in [site mode](site-mode.md) serves all users of a machine.",
)
TAKES_NONE = Diagnostic(
    443,
    "the daemon at {where} takes no requests of yours now: {why}",
    "Try again in a minute",
    "The daemon bounds how many requests are open at a time, and this command has tried for a while.",
)
NO_ANSWER = Diagnostic(
    444,
    "the daemon at {where} {what}",
    "Try again. If it happens again, see the daemon's log",
    "The daemon is busy, stuck, or was stopped just now. The command has changed nothing.",
)
ORDER_UNANSWERED = Diagnostic(
    445,
    "the daemon at {where} {what}. The order may have been carried out",
    "See bftrainer list, and the daemon's log, before you give the order again",
    "The daemon has the order, and the connection ended before its answer came.",
)
NO_DAEMONS_ANSWER = Diagnostic(
    446,
    "what answers {where} does not answer like a daemon: {said}",
    "Check that bftrainer has the same version there as here, and that the setting server names a daemon",
    "Another program answers there, or a daemon of another version. bftrainer --debug shows where the answer "
    "is odd.",
)
NO_UTF8 = Diagnostic(
    447,
    "{quoted} is no text in UTF-8",
    "Rename the file or folder",
    "Requests are JSON, which can only hold names that are text.",
)
NOT_FOR_HIM = Diagnostic(
    448,
    "the daemon does not do this for you: {why}",
    "Ask the site's admins, or start a daemon of your own",
    "A daemon serves its own user, or in [site mode](site-mode.md) all users that its machine knows by name.",
)
UNKNOWN_CALLER = Diagnostic(
    449,
    "the daemon does not know who asks: {why}",
    "See that munged runs on both machines, with one key and right clocks, and that munge is set",
    "Over a network a credential of munge tells who you are. See [Site mode](site-mode.md).",
)
BUSY = Diagnostic(
    450,
    "the daemon takes no more of this at once: {why}",
    "Try again in a moment, and send fewer requests at a time",
    "Bounds on connections, requests in a second and large answers keep one user from taking the daemon from "
    "the others. Each that an admin can raise is named.",
)
ODD_REQUEST = Diagnostic(
    451,
    "the request cannot be understood: {why}",
    "Correct it as [the HTTP interface](http.md) says",
    "The body is a JSON object with the fields of its path, and numbers are within their bounds. bftrainer's "
    "own commands send no other requests.",
)
TOO_MUCH_WORK = Diagnostic(
    452,
    "it takes more than {limit:g} s of work",
    "Ask for less",
    "The daemon bounds the work of one request, so that others get their answers.",
)
PAGE = Diagnostic(
    453,
    "the page is not shown: {why}",
    "Open the link that bftrainer web has printed, or start it again for a new one",
    "The link opens the page once, in one browser, so that no other user and no other site sees it: see [The "
    "page](web.md).",
)
BATCH_SYSTEM = Diagnostic(
    454,
    "the batch system gives no answer that helps: {why}",
    "See that its commands work here, as you: bftrainer admin check",
    "bftrainer asks the batch system by its commands. They are missing, fail, or print "
    "what is not understood.",
)
