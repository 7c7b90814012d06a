"""A Horovod worker waits for its place in the membership before Horovod connects it to the others.

Horovod reads rank and size from the environment when it is initialised for the first time, and asks the
driver later. Here the worker asks the first time, too. So all that the script does before it attaches
happens while the members train on, and no member waits for a worker that dies on the way.
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import sys
from collections.abc import Sequence

from bftrainer.elastic.horovod import mend
from bftrainer.messages.ranks import HOROVOD_EARLY, NO_DRIVER, NO_INTERFACE

NAMES = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
DRIVER = "HOROVOD_GLOO_RENDEZVOUS_ADDR"
ANSWER_S = 5.0
"""Seconds for the driver to note something, or to return a note."""


def is_wanted() -> bool:
    """True if this is a worker of a Horovod driver that has no place yet."""
    return DRIVER in os.environ and "HOROVOD_RANK" not in os.environ


def is_taken() -> bool:
    """True if this is a worker of a Horovod driver that has had a place."""
    return DRIVER in os.environ and "HOROVOD_RANK" in os.environ


def world() -> tuple[int, int, int] | None:
    """Rank and size of the present membership, and which it is of this process, see `worlds`; None where it
    has one worker, or Horovod connects none at the moment."""
    horovod = sys.modules.get("horovod.torch")
    if horovod is None or not horovod.is_initialized() or horovod.size() < 2:
        return None
    return horovod.rank(), horovod.size(), worlds()


def worlds() -> int:
    """Number of Horovod's initialisations in this process: one for each membership."""
    return mend.worlds


def take(address: str, local_rank: int = 0) -> None:
    """Wait for a place, and put it into the environment for `hvd.init()`.

    `address` is where others reach this node: Horovod needs the name of its network interface. `local_rank`
    is the number of this process on it.

    Raises:
        RuntimeError: Horovod is initialised already, the driver is gone, or no interface has the address.
        SystemExit: this worker is not needed any more; the code is 0.
    """
    horovod = sys.modules.get("horovod.torch")
    if horovod is not None and horovod.is_initialized():
        raise RuntimeError(HOROVOD_EARLY.say())
    os.environ.setdefault("HOROVOD_GLOO_IFACE", interface_of(address))
    place = _ask(f"{os.environ['HOROVOD_HOSTNAME']}:{local_rank}")
    if place[0] < 0:
        raise SystemExit(0)  # not needed any more
    mend.mend()
    os.environ.update({f"HOROVOD_{name}": str(value) for name, value in zip(NAMES, place, strict=True)})


def interface_of(address: str) -> str:
    """The network interface that has this address; every loopback address is the loopback device's.

    Raises:
        RuntimeError: there is none.
    """
    import psutil  # noqa: PLC0415  comes with Horovod

    wanted = "127.0.0.1" if ipaddress.ip_address(address).is_loopback else address
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address == wanted for entry in entries):
            return str(name)
    raise RuntimeError(NO_INTERFACE.say(address=address))


class DriversBoard:
    """Board of one membership's workers, at the driver, which clears it with the next membership.

    Every method raises `OSError` where the driver does not answer.
    """

    def set(self, key: str, value: str) -> None:
        """Set the value of a key, which has one slash."""
        self._request("PUT", key, value.encode())

    def check(self, keys: Sequence[str]) -> bool:
        """True if all of these keys are set."""
        return all(self._request("GET", key)[0] == http.client.OK for key in keys)

    def get(self, key: str) -> bytes:
        """Value of a key."""
        return self._request("GET", key)[1]

    def _request(self, method: str, key: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = _driver(timeout=ANSWER_S)
        try:
            connection.request(method, f"/{key}", body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise OSError(f"Horovod's driver: {error}") from error
        finally:
            connection.close()


def _driver(timeout: float | None = None) -> http.client.HTTPConnection:
    port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    return http.client.HTTPConnection(os.environ[DRIVER], port, timeout=timeout)


def _ask(worker: str) -> list[int]:
    connection = _driver()
    try:
        connection.request("GET", f"/rank_and_size/{worker}")
        return [int(part) for part in connection.getresponse().read().split(b",")]
    except (OSError, http.client.HTTPException, ValueError) as error:
        at = f"{connection.host}:{connection.port}"
        raise RuntimeError(NO_DRIVER.say(at=at, why=error)) from error
    finally:
        connection.close()
