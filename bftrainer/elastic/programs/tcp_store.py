"""`python -m bftrainer.elastic.programs.tcp_store ADDRESS`: rendezvous stores for torchrun-style workers.

The stores must outlive every node, so this process runs beside the daemon, which itself imports no torch.
Lines of JSON: in {"trainer": 3, "run": 17}, out {"trainer": 3, "run": 17, "port": 40123}. Each run has its
own store; a trainer's next run closes the one before. The process ends with its standard input.
"""

from __future__ import annotations

import json
import socket
import sys

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported conditionally


def open_store(address: str) -> TCPStore:
    """A store that listens on `address` only, at a port that the kernel chooses.

    Raises:
        OSError: this machine has no such address.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        listener.listen(1024)
        port = listener.getsockname()[1]
        return TCPStore(
            address, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )


def main() -> None:
    """Open a store for every line of the standard input, and answer with its port."""
    stores: dict[int, TCPStore] = {}
    for line in sys.stdin:
        wanted = json.loads(line)
        store = stores[wanted["trainer"]] = open_store(sys.argv[1])
        print(json.dumps({**wanted, "port": store.port}), flush=True)


if __name__ == "__main__":
    main()
