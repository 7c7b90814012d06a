"""What a forked worker process of a DataLoader does with the connections of its parent."""

from __future__ import annotations

import os
import socket
import stat

from bftrainer.elastic.members.sockets import open_sockets
from bftrainer.elastic.train.data import Start


def test_connections_are_closed_and_their_numbers_stay_taken() -> None:
    before = open_sockets()
    listener = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listener.getsockname())
    peer, _ = listener.accept()
    done, wait = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            Start(before, None)(0)
            modes = [os.fstat(s.fileno()).st_mode for s in (listener, ours, peer)]
            os.write(done[1], b"n" if any(stat.S_ISSOCK(mode) for mode in modes) else b"y")
            os.read(wait[0], 1)
        except OSError:  # a number is free
            os.write(done[1], b"n")
        finally:
            os._exit(0)
    try:
        assert os.read(done[0], 1) == b"y", "no other file can get the number of a connection"
        ours.close()
        peer.settimeout(5.0)
        assert peer.recv(1) == b"", "the peer learns that the parent has closed it"
    finally:
        os.write(wait[1], b"x")
        os.waitpid(child, 0)
        for each in (listener, peer):
            each.close()
        for fd in (*done, *wait):
            os.close(fd)
