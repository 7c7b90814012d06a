"""The store of torchrun-style workers, with a PyTorch whose libuv takes no open socket."""

from __future__ import annotations

from typing import Any

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported conditionally

from bftrainer.elastic.programs import tcp_store


def test_a_store_opens_without_libuv_where_that_takes_no_open_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def older(*args: Any, use_libuv: bool, **options: Any) -> TCPStore:
        if use_libuv:
            raise RuntimeError("libuv takes no open socket")
        return TCPStore(*args, use_libuv=False, **options)

    monkeypatch.setattr(tcp_store, "TCPStore", older)
    store = tcp_store.open_store("127.0.0.1")
    other = TCPStore("127.0.0.1", store.port, is_master=False, use_libuv=False)
    other.set("key", "value")
    assert store.get("key") == b"value"
