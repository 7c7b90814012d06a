"""Finds the user at the other end of a TCP connection on this machine, in the kernel's socket table.

The answer is good for sharing out what the daemon has, not for rights: users of other machines have none.
"""

from __future__ import annotations

import ipaddress
import socket
import struct

NETLINK_SOCK_DIAG = 4  # of <linux/netlink.h>; Python has no name for it
_BY_FAMILY, _REQUEST, _ANY_STATE, _NO_COOKIE = 20, 1, 0xFFFFFFFF, b"\xff" * 8
_HEAD = struct.Struct("=IHHII")  # length, type, flags, sequence, port: struct nlmsghdr
_QUESTION = struct.Struct("=BBBBI")  # family, protocol, extensions, states: struct inet_diag_req_v2
_SOCKET = struct.Struct("!HH16s16s4x8s")  # ports, addresses, cookie: struct inet_diag_sockid
_ANSWER = struct.Struct("=BBBB48xIIIII")  # family, state, ..., uid and inode: struct inet_diag_msg
_MOST = 4096


def local_uid(client: socket.socket, peer: tuple[str, int]) -> int | None:
    """The number of the user whose socket is connected to `client`, from the address `peer`; None: it is on
    another machine, nobody has it any more, or the kernel does not say.

    Raises:
        OSError: the client is gone.
    """
    (there, port), (here, own_port) = peer, client.getsockname()[:2]
    found = [address_of(host) for host in (there, here)]
    if not (found[0].is_loopback or found[0] == found[1]):
        return None
    family = socket.AF_INET if found[0].version == 4 else socket.AF_INET6
    pair = (port, own_port, *(address.packed.ljust(16, b"\0") for address in found))
    asked = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE) + _SOCKET.pack(*pair, _NO_COOKIE)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
            kernel.setblocking(False)  # it answers at once, or not at all
            kernel.send(_HEAD.pack(_HEAD.size + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked)
            said = kernel.recv(_MOST)
    except OSError:  # no such table, or it may not be asked here
        return None
    if _HEAD.unpack_from(said)[1] != _BY_FAMILY:  # an error: there is no such socket any more
        return None
    *_, uid, inode = _ANSWER.unpack_from(said, _HEAD.size)
    return int(uid) if inode else None  # a socket that is closed has no user, and 0 stands there


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address of a host as sockets tell it, without its interface; an IPv4 one in IPv6's form as such."""
    found = ipaddress.ip_address(host.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found
