"""Restricts what others can make Horovod's driver do.

Horovod's workers send it pickles, and a pickle may call any function; its HTTP server also answers
questions on files. The driver runs with the daemon's rights, the workers with their user's, and every process
on the network can reach it. So it accepts plain data and the two answers that it expects, and nothing else.
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
    """The object of a pickle of plain data, or of one of the two known answers.

    Raises:
        pickle.UnpicklingError: the pickle names anything else.
    """
    return _Plain(io.BytesIO(data)).load()


def loads_base64(text: bytes) -> Any:
    """Like `loads`, from base64."""
    return loads(base64.b64decode(text))


def guard() -> None:
    """Have Horovod in this process unpickle with `loads`, and answer no questions on files."""
    codec.loads_base64 = loads_base64
    network.cloudpickle = SimpleNamespace(dumps=network.cloudpickle.dumps, loads=loads)
    KVStoreHandler.do_HEAD = _no_files


def _no_files(handler: Any) -> None:
    handler.send_error(405)
