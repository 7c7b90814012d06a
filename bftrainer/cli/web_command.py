"""bftrainer web"""

from __future__ import annotations

import asyncio
import signal
import socket
import tempfile
import webbrowser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.cli.shared.connection import connect, without_certificates
from bftrainer.cli.shared.options import daemon_options
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.lines import PUBLIC_ADMIN

if TYPE_CHECKING:
    from bftrainer.web.access import Access

PAGE = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={}">'
"""A file of the user's own that leads to the page: a browser's command line would show others the token."""


@click.command("web")
@click.argument("record", type=Input(), required=False)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="The port on loopback; 0: any that is free."
)
@click.option("--browser/--no-browser", default=True, help="Open a browser where there is one.")
@click.option(
    "--public",
    "public",
    multiple=True,
    metavar="HOST",
    help="Show everybody what every user may see, read-only, behind the site's own proxy for this host name.",
)
@daemon_options
def command(
    record: Path | None,
    port: int,
    browser: bool,
    public: tuple[str, ...],
    config: Path | None,
    state_dir: str | None,
) -> None:
    """Show what happens in a page: nodes, trainers, decisions, the queue and studies, as they change.

    The page is served on this machine's loopback address only, and speaks to the daemon with your rights.
    The link counts once; whoever opens it first has the page. It runs until Ctrl-C.

    With RECORD, a replay's record (bftrainer replay --out NAME.json.gz), the page shows that instead.
    """
    with without_certificates():
        from bftrainer.api.follow import streamed
    from bftrainer.api.transport.listen import bind_loopback
    from bftrainer.web.access import Access
    from bftrainer.web.server import application, hosts_of, serve

    ask, recorded = None, b""
    if record is not None:
        from bftrainer.replay.record.storage import as_json, read

        recorded = as_json(read(record))
    else:
        client = connect(config, state_dir)
        ask, status = partial(streamed, client), client.call("GET", "status")  # no page without a daemon
        if public and status["settings"]:  # only admins see them
            raise BftrainerError(PUBLIC_ADMIN.say())
    bound = bind_loopback(port, "--port")
    access = Access(hosts_of(bound.getsockname()[1], public), public=bool(public))
    app = application(access, ask, record=recorded)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the folder goes then, too
    with tempfile.TemporaryDirectory(prefix="bftrainer-web-") as folder:
        asyncio.run(serve(bound, app, lambda: _tell(bound, access, Path(folder) if browser else None)))


def _tell(bound: socket.socket, access: Access, folder: Path | None) -> None:
    """Say where the page is; open it by a file in `folder`, which only its user can read."""
    port = bound.getsockname()[1]
    url = f"http://127.0.0.1:{port}/" + ("" if access.public else f"#token={access.token}")
    say(f"the page is at {url}")
    if access.public:
        return
    say(f"from another machine first: ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}")
    if folder is not None:
        file = folder / "open.html"
        file.write_text(PAGE.format(url), encoding="utf-8")
        if not _has_display() or not webbrowser.open(file.as_uri()):
            say("no browser is opened here: open the link in one")


def _has_display() -> bool:
    import os
    import sys

    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
