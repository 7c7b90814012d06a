"""Keeps Horovod's driver from obeying more than it has to.

Horovod's workers talk to it in pickles, and a pickle may call whatever it names; its HTTP server also
tells of files. The driver runs with the daemon's rights, the workers with their user's, and anybody on the
network can reach it: here it takes plain data and the two answers that it expects, and nothing else.
"""

from __future__ import annotations

import base64
import io
import pickle
from types import SimpleNamespace
from typing import Any

from horovod.runner.common.util import codec, network
from horovod.runner.http.http_server import KVStoreHandler

ANSWERS = {(network.__name__, name) for name in ("AckResponse", "PingResponse")}


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ANSWERS:
            raise pickle.UnpicklingError(f"{module}.{name} is nothing that a worker has to say")
        return super().find_class(module, name)


def loads(data: bytes) -> Any:
    """The object of a pickle of plain data. Raises `pickle.UnpicklingError` for anything else."""
    return _Plain(io.BytesIO(data)).load()


def loads_base64(text: bytes) -> Any:
    """As `loads`."""
    return loads(base64.b64decode(text))


def guard() -> None:
    """Have all of Horovod in this process unpickle with `loads`, and serve no files."""
    codec.loads_base64 = loads_base64
    network.cloudpickle = SimpleNamespace(dumps=network.cloudpickle.dumps, loads=loads)
    KVStoreHandler.do_HEAD = _no_files


def _no_files(handler: Any) -> None:
    handler.send_error(405)
