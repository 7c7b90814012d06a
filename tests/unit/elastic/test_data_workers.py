"""Worker processes of a DataLoader: their parent's connections, and which data set they see."""

from __future__ import annotations

import gc
import os
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from bftrainer import elastic
from bftrainer.elastic.members.group import Group
from bftrainer.elastic.members.sockets import open_sockets
from bftrainer.elastic.train.source import LoaderStart


def test_connections_are_closed_and_their_numbers_stay_taken() -> None:
    before = open_sockets()
    listener = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listener.getsockname())
    peer, _ = listener.accept()
    done, wait = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            LoaderStart(before, None)(0)
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


@contextmanager
def collected_by_hand() -> Iterator[None]:
    """No garbage is collected meanwhile but where the test says so."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_a_worker_leaves_the_groups_of_its_parent_alone() -> None:
    with collected_by_hand():
        backend = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=9))
        group: list[object] = [Group(1, 0, 1, backend)]
        group.append(group)  # as an exception's traceback does
        del backend, group
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)  # to wait for threads that are not there ends as well
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


class Graded(Dataset[tuple[int, int]]):
    """Samples that tell how hard they are, which the script changes between epochs."""

    level = 0

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> tuple[int, int]:
        return i, self.level


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("lasting", [False, True])
def test_what_the_script_changes_between_epochs_is_in_the_next_one(workers: int, lasting: bool) -> None:
    data, model = Graded(), torch.nn.Linear(1, 1)
    loader = DataLoader(data, batch_size=5, num_workers=workers, persistent_workers=lasting and workers > 0)
    run = elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, epochs=3)

    @run.after_epoch
    def harder() -> None:
        data.level += 1

    found: dict[int, list[tuple[int, int]]] = {0: [], 1: [], 2: []}
    for which, levels in run:
        epoch = run.position.epoch
        found[epoch] += zip(which.tolist(), levels.tolist(), strict=True)
        run.backward(model(torch.ones(1)).mean())
        run.step()
    assert found == {epoch: [(i, epoch) for i in range(12)] for epoch in found}
