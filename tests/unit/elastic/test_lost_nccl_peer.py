"""A ProcessGroupNCCL whose peer is lost: its watchdog and its destructor, without a GPU.

The stand-in is a native thread and a destructor that joins it, as PyTorch's sources have it. After an error
the watchdog tells the store: of a store in Python that takes the GIL. Then it sleeps, unless the environment
says otherwise, and takes the process down, if that is what the environment says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

STAND_IN = textwrap.dedent("""
    import ctypes, os, sys, threading
    from datetime import timedelta
    import torch, torch.distributed as dist
    from bftrainer.elastic.members import default_group, nccl
    from bftrainer.elastic.members.group import Group, GroupBroken
    from bftrainer.elastic.members.rendezvous import Rendezvous
    from bftrainer.elastic.loop.peers import SingleProcess

    libc, holding_gil = ctypes.CDLL(None), ctypes.PyDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    TELL = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

    def set_to(name, default):
        return int((libc.getenv(b"TORCH_NCCL_" + name) or default).decode())

    class Nccl(dist.ProcessGroupGloo):
        "ProcessGroupNCCL: `mode` says whether its destructor waits with the GIL or without."

        class Options:
            pass

        def __init__(self, store, rank, size, options):
            super().__init__(dist.HashStore(), 0, 1, timedelta(seconds=1))
            self.store, self.thread = store, ctypes.c_void_p()
            self.tears_down = set_to(b"ASYNC_ERROR_HANDLING", b"3") != 0
            self.sleeps_s = 4 * set_to(b"WAIT_TIMEOUT_DUMP_MILSEC", b"15000") // 1000
            if mode == "slow":
                self.sleeps_s = 60

        def eager_connect_single_device(self, device):
            pass

        def abort(self):
            pass

        def lose_a_peer(self):
            in_python = not type(self.store).__module__.startswith("torch.")
            if in_python:
                self.body = TELL(lambda _: self.store.set("dump", "0"))
                body = ctypes.cast(self.body, ctypes.c_void_p)
            else:
                body = ctypes.cast(libc.sleep, ctypes.c_void_p)
            libc.pthread_create(ctypes.byref(self.thread), None, body, ctypes.c_void_p(self.sleeps_s))
            if self.tears_down:
                print("the watchdog takes the process down", flush=True)
                os._exit(6)

        def __del__(self):
            if self.thread.value:
                (holding_gil if mode == "gil" else libc).pthread_join(self.thread, None)
            print("destroyed", flush=True)

    mode = sys.argv[1]
    dist.ProcessGroupNCCL, dist.is_nccl_available = Nccl, lambda: True
    group = Group(3, 0, 2, dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=1)))
    store = Rendezvous(lambda key, value: None)
    peers = SingleProcess.__new__(SingleProcess)
    peers.group = nccl.accelerate(group, store, torch.device("cuda"), "localhost")
    default_group.install(peers.group)
    peers.group.accelerated.lose_a_peer()
    peers.group.fail("n2 is lost")
    peers.let_go()
    print("trains on", flush=True)
    for thread in threading.enumerate():
        if mode != "slow" and thread is not threading.main_thread():
            thread.join()
    os._exit(0)
""")


@pytest.mark.parametrize("mode", ["plain", "gil", "slow"])
def test_the_survivor_trains_on(mode: str) -> None:
    env = {key: value for key, value in os.environ.items() if "NCCL" not in key}
    env |= {"NCCL_ASYNC_ERROR_HANDLING": "1"}  # as many job scripts have it
    done = subprocess.run(
        [sys.executable, "-c", STAND_IN, mode],
        env=env,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trains on" in done.stdout
