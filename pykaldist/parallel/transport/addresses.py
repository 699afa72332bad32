"""Network addresses: at which address a process listens, so that only the machines of the job can reach it.

Where all processes are on one machine, it is the loopback address. Otherwise it is the IPv4 address of the network interface that faces the
other machines: the interface that the user has named (`--interface`); else one in whose network the others have an address; else the one by
which the system sends to them. MPI, gloo and NCCL choose their addresses by variables of the environment (`variables`), before the
processes have met.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError

LOOPBACK = "127.0.0.1"
LOOPBACK_INTERFACE = "lo"
SIOCGIFADDR, SIOCGIFNETMASK = 0x8915, 0x891B
BY_UCX, BY_GLOO, BY_NCCL, BY_LIBFABRIC = "UCX_NET_DEVICES", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "FI_TCP_IFACE"
UCX_WITHOUT_TCP = {"UCX_TLS": "^tcp"}  # between processes of one machine, which share memory: UCX would listen by TCP as well


def variables(interface: str) -> dict[str, str]:
    """The environment variables that make MPI (of MPICH: UCX or libfabric), gloo and NCCL use a network interface, if one is named.

    With the loopback interface, for processes of one machine, UCX does without TCP. Variables that the user has set are left out.
    """
    found = dict.fromkeys((BY_UCX, BY_GLOO, BY_NCCL, BY_LIBFABRIC), interface) if interface else {}
    if interface == LOOPBACK_INTERFACE:
        found.update(UCX_WITHOUT_TCP)
    return {name: value for name, value in found.items() if name not in os.environ}


def variables_of_gloo(address: str) -> dict[str, str]:
    """The environment variable that makes gloo use the interface with this address. Empty where the user has set it, or for loopback."""
    names = [name for name, one in interfaces().items() if str(one.ip) == address]
    return {BY_GLOO: names[0]} if names and BY_GLOO not in os.environ else {}


def interfaces() -> dict[str, IPv4Interface]:
    """The network interfaces of this machine that have an IPv4 address, with this address and its network. Loopback is left out."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                address, mask = (socket.inet_ntoa(fcntl.ioctl(probe.fileno(), code, request)[20:24])
                                 for code in (SIOCGIFADDR, SIOCGIFNETMASK))
            except OSError:
                continue  # an interface without an address
            if not address.startswith("127."):
                found[name] = IPv4Interface(f"{address}/{mask}")
    return found


def is_here(host: str) -> bool:
    """True for a name or IPv4 address of this machine. Names that only a name server knows are left out."""
    return host in ("localhost", socket.gethostname(), *(str(one.ip) for one in interfaces().values())) or host.startswith("127.")


def machine() -> str:
    """A name of this machine that no other machine has. A container, or a network namespace, counts as a machine of its own."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return " ".join([socket.gethostname(), boot, os.readlink("/proc/self/ns/pid"), os.readlink("/proc/self/ns/net")])


def machine_card() -> dict[str, Any]:
    """What a process tells the others of its machine: the machine's name, its host name, and its network interfaces."""
    return {"machine": machine(), "host": socket.gethostname(), "networks": {name: str(one) for name, one in interfaces().items()}}


def listening_address(cards: Sequence[Mapping[str, Any]], interface: str = "") -> str:
    """The address at which a process of this machine listens for the processes that have told these cards (`machine_card`)."""
    own = machine()
    others = {one["machine"]: [IPv4Interface(network) for network in one["networks"].values()] for one in cards if one["machine"] != own}
    return facing(interfaces(), list(others.values()), interface) if others else LOOPBACK


def facing(own: Mapping[str, IPv4Interface], others: Sequence[Sequence[IPv4Interface]], interface: str = "") -> str:
    """The address of this machine that all other machines can reach. Raises UserError where there is none.

    `own` are the interfaces of this machine, `others` those of each other machine. `interface` names the one to use, if the user has named
    one.
    """
    host, known = socket.gethostname(), ", ".join(f"{name} ({one.ip})" for name, one in own.items()) or "none"
    if interface:
        if interface not in own:
            raise UserError(f"--interface {interface}: {host} has no such network interface with an IPv4 address; it has {known}.")
        return str(own[interface].ip)
    everywhere = {one.ip for those in others for one in those}  # bridges of containers have the same address on all machines
    candidates = [one for one in own.values() if one.ip not in everywhere]
    for one in candidates:
        if all(any(other.ip in one.network for other in those) for those in others):
            return str(one.ip)
    mine = {one.ip for one in own.values()}
    for those in others:
        for other in those:
            if other.ip not in mine and (source := _source(str(other.ip))) in map(str, (one.ip for one in candidates)):
                return source
    raise UserError(f"{host} has no network interface that faces the other hosts of the job; it has {known}: name one by --interface.")


def _source(address: str) -> str:
    """The address from which the system would send to another address; empty where it cannot."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # sends nothing
        except OSError:
            return ""
        return str(probe.getsockname()[0])
