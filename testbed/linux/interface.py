"""Network interfaces: those of a node, messages that change them, and their state read back.

Offloads are turned off, so that switches see single packets.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import NamedTuple, Protocol

from weft.testbed.linux import netlink
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.address import IPV4, AddressFamily, Prefix

IFINFO = struct.Struct("=BxHiII")  # family, type, index, flags, changed flags
IFF_UP = 1
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_MASTER, IFLA_LINKINFO = 1, 3, 4, 10, 18
IFLA_NET_NS_FD, IFLA_EXT_MASK, IFLA_GSO_MAX_SEGS = 28, 29, 40
IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES = 31, 32
IFLA_CARRIER_CHANGES, IFLA_PROTO_DOWN = 35, 39
IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 2, 1
IFLA_VXLAN_ID, IFLA_VXLAN_GROUP, IFLA_VXLAN_LOCAL = 1, 2, 4
IFLA_VXLAN_LEARNING, IFLA_VXLAN_PORT = 7, 15
RTEXT_FILTER_SKIP_STATS = 1 << 3
IFA_ADDRESS, IFA_LOCAL = 1, 2
NODAD = 2  # IFA_F_NODAD
U32, U16 = struct.Struct("=I"), struct.Struct(">H")
VXLAN = "vxlan"  # kind of an interface


class Device(Protocol):
    """An interface: its index and its name."""

    @property
    def ifindex(self) -> int: ...

    @property
    def dev(self) -> str: ...


class NamedDevice(NamedTuple):
    """An interface that is no end of a planned link."""

    ifindex: int
    dev: str


LOOPBACK = NamedDevice(1, "lo")


class VethSide(NamedTuple):
    """One side of a new veth pair, as attributes and as words of `ip link add`."""

    body: bytes
    words: str

    def extended(self, attribute: bytes, words: str) -> VethSide:
        """Return this side with a further attribute."""
        return VethSide(self.body + attribute, f"{self.words} {words}")


class Tunnel(NamedTuple):
    """One end of a VXLAN tunnel.

    number: of the tunnel, 24 bits.
    local, remote: IPv4 addresses of this machine and of the other.
    port: UDP port of both.
    learns: it learns where addresses are.
    """

    number: int
    local: str
    remote: str
    port: int
    learns: bool = False

    def __str__(self) -> str:
        ends = f"remote {self.remote} local {self.local} dstport {self.port}"
        return f"id {self.number} {ends} {'' if self.learns else 'no'}learning"


class InterfaceState(NamedTuple):
    """The state of an interface in the kernel.

    tunnel: None if it is none.
    carrier_changes: since it was made.
    """

    name: str
    up: bool
    gso_max_segs: int
    mtu: int
    tunnel: Tunnel | None
    carrier_changes: int


def set_up(device: Device, up: bool = True) -> NetlinkMessage:
    """Return the message that sets an interface up or down."""
    body = IFINFO.pack(0, 0, device.ifindex, IFF_UP if up else 0, IFF_UP)
    command = f"ip link set {device.dev} {'up' if up else 'down'}"
    return NetlinkMessage(netlink.RTM_NEWLINK, 0, body, command)


def new(
    device: Device, kind: str, data: bytes = b"", words: str = "", *, up: bool = True
) -> NetlinkMessage:
    """Return the message that makes an interface.

    Args:
        device: its index, 0 for any, and name.
        kind: such as bridge.
        data: attributes of that kind.
        words: the same, in the language of ip.
        up: set it up.
    """
    flags = IFF_UP if up else 0
    info = netlink.text(IFLA_INFO_KIND, kind)
    info += netlink.attribute(IFLA_INFO_DATA, data) if data else b""
    body = IFINFO.pack(0, 0, device.ifindex, flags, flags) + netlink.text(IFLA_IFNAME, device.dev)
    body += netlink.attribute(IFLA_LINKINFO, info)
    state = " up" if up else ""
    index = f" index {device.ifindex}" if device.ifindex else ""
    command = f"ip link add {device.dev}{state}{index} type {kind}{words}"
    return NetlinkMessage(netlink.RTM_NEWLINK, netlink.CREATE, body, command)


def veth_side(device: Device, mac: bytes = b"", *, up: bool = False) -> VethSide:
    """Return one side of a veth with one queue; without `mac` the kernel chooses an address."""
    flags = IFF_UP if up else 0
    body = IFINFO.pack(0, 0, device.ifindex, flags, flags) + netlink.text(IFLA_IFNAME, device.dev)
    words = f"{device.dev}{' up' if up else ''} index {device.ifindex}"
    if mac:
        body += netlink.attribute(IFLA_ADDRESS, mac)
        words += f" address {mac.hex(':')}"
    body += netlink.u32(IFLA_NUM_TX_QUEUES, 1) + netlink.u32(IFLA_NUM_RX_QUEUES, 1)
    return VethSide(body, f"{words} numtxqueues 1 numrxqueues 1")


def veth(near: VethSide, far: VethSide, far_fd: int, far_namespace: str) -> NetlinkMessage:
    """Return the message that makes a veth pair, for the namespace of the near side.

    far_fd: descriptor of the namespace of the far side.
    """
    peer = far.body + netlink.u32(IFLA_NET_NS_FD, far_fd)
    data = netlink.nested(IFLA_INFO_DATA, netlink.attribute(VETH_INFO_PEER, peer))
    body = near.body + netlink.nested(IFLA_LINKINFO, netlink.text(IFLA_INFO_KIND, "veth"), data)
    command = f"ip link add {near.words} type veth peer {far.words} netns {far_namespace}"
    return NetlinkMessage(netlink.RTM_NEWLINK, netlink.CREATE, body, command)


def vxlan(side: VethSide, space: tuple[int, str], tunnel: Tunnel) -> NetlinkMessage:
    """Return the message that makes one end of a VXLAN tunnel, for the carrying namespace.

    Args:
        side: the interface.
        space: descriptor and name of the namespace of the interface.
        tunnel: as this end has it.
    """
    data = netlink.nested(
        IFLA_INFO_DATA,
        netlink.u32(IFLA_VXLAN_ID, tunnel.number),
        netlink.attribute(IFLA_VXLAN_GROUP, IPv4Address(tunnel.remote).packed),
        netlink.attribute(IFLA_VXLAN_LOCAL, IPv4Address(tunnel.local).packed),
        netlink.attribute(IFLA_VXLAN_LEARNING, b"\0"),
        netlink.attribute(IFLA_VXLAN_PORT, U16.pack(tunnel.port)),
    )
    body = side.body + netlink.u32(IFLA_NET_NS_FD, space[0])
    body += netlink.nested(IFLA_LINKINFO, netlink.text(IFLA_INFO_KIND, VXLAN), data)
    command = f"ip link add {side.words} netns {space[1]} type vxlan {tunnel}"
    return NetlinkMessage(netlink.RTM_NEWLINK, netlink.CREATE, body, command)


def _tunnel(attributes: Mapping[int, bytes]) -> Tunnel | None:
    """Return the tunnel of an interface with these attributes; None if it is none."""
    information = netlink.attributes(attributes.get(IFLA_LINKINFO, b""))
    if information.get(IFLA_INFO_KIND, b"").rstrip(b"\0") != VXLAN.encode():
        return None
    data = netlink.attributes(information[IFLA_INFO_DATA])
    local, remote = (
        f"{IPv4Address(data.get(kind, bytes(4)))}" for kind in (IFLA_VXLAN_LOCAL, IFLA_VXLAN_GROUP)
    )
    (number,), (port,) = U32.unpack(data[IFLA_VXLAN_ID]), U16.unpack(data[IFLA_VXLAN_PORT])
    return Tunnel(number, local, remote, port, learns=data[IFLA_VXLAN_LEARNING] != b"\0")


def set_carrier(device: Device, carrier: bool) -> NetlinkMessage:
    """Return the message that takes the carrier of a tunnel's end, or gives it back."""
    body = IFINFO.pack(0, 0, device.ifindex, 0, 0)
    body += netlink.attribute(IFLA_PROTO_DOWN, b"\0" if carrier else b"\1")
    command = f"ip link set {device.dev} protodown {'off' if carrier else 'on'}"
    return NetlinkMessage(netlink.RTM_NEWLINK, 0, body, command)


def add_address(device: Device, address: Prefix, family: AddressFamily = IPV4) -> NetlinkMessage:
    """Return the message that gives an interface an address of `family` with its prefix length.

    IPv6 uses it at once, without a search for duplicates.
    """
    flags = 0 if family == IPV4 else NODAD
    length = family.bits + address.length
    body = struct.pack("=BBBBI", family.number, length, flags, 0, device.ifindex)
    if family == IPV4:
        body += netlink.network_u32(IFA_LOCAL, address.network)
    body += netlink.address(IFA_ADDRESS, family.address(address.network))
    command = f"ip address add {family.prefix(address)} dev {device.dev}" + " nodad" * bool(flags)
    return NetlinkMessage(netlink.RTM_NEWADDR, netlink.CREATE, body, command)


def interfaces(socket: netlink.Socket) -> dict[int, InterfaceState]:
    """Return every interface in the socket's namespace, by index."""
    by_index = {}
    request = IFINFO.pack(0, 0, 0, 0, 0) + netlink.u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)
    for body in socket.dump(netlink.RTM_GETLINK, request):
        _, _, index, flags, _ = IFINFO.unpack_from(body)
        attributes = netlink.attributes(body, IFINFO.size)
        segments = attributes.get(IFLA_GSO_MAX_SEGS)
        by_index[index] = InterfaceState(
            name=attributes[IFLA_IFNAME].rstrip(b"\0").decode(),
            up=bool(flags & IFF_UP),
            gso_max_segs=U32.unpack(segments)[0] if segments else 0,
            mtu=U32.unpack(attributes[IFLA_MTU])[0],
            tunnel=_tunnel(attributes),
            carrier_changes=U32.unpack(attributes[IFLA_CARRIER_CHANGES])[0],
        )
    return by_index


@dataclass(frozen=True, slots=True)
class Interface:
    """The device of one port.

    neighbours: (IPv4 address, Ethernet address) of each node one hop away.
    link: a number shared by all nodes at that link or crossbar, and by no other link.
    elsewhere: neighbours on other machines, whose clocks differ from this one's.
    """

    ifindex: int
    dev: str
    neighbours: Mapping[int, tuple[int, bytes]]
    link: int
    elsewhere: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class NodeInterfaces:
    """A node's name, namespace, IPv4 address, and interface of each port."""

    node: int
    name: str
    namespace: str
    address: int
    ports: Mapping[int, Interface]


SIOCETHTOOL = 0x8946
GSTRINGS, GFEATURES, SFEATURES, GSSET_INFO = 0x1B, 0x3A, 0x3B, 0x37
ETH_SS_FEATURES = 4
STRING_BYTES = 32
BUNDLING = (
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-generic-segmentation",
    "tx-gso-partial",
    "tx-gso-list",
    "tx-udp-segmentation",
    "rx-gro",
    "rx-gro-list",
    "rx-gro-hw",
    "rx-udp-gro-forwarding",
)


def _ioctl(control: socket.socket, dev: str, buffer: ctypes.Array[ctypes.c_char]) -> None:
    try:
        fcntl.ioctl(
            control, SIOCETHTOOL, struct.pack("16sP16x", dev.encode(), ctypes.addressof(buffer))
        )
    except OSError as error:
        raise OSError(error.errno, f"ethtool {dev}: {error.strerror}") from None


def _features(control: socket.socket, dev: str) -> tuple[int, frozenset[int]]:
    """Return the number of the kernel's features, and the numbers of those that bundle packets."""
    info = ctypes.create_string_buffer(
        struct.pack("=IIQI", GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0), 20
    )
    _ioctl(control, dev, info)
    count = struct.unpack_from("=I", info.raw, 16)[0]
    names = ctypes.create_string_buffer(
        struct.pack("=III", GSTRINGS, ETH_SS_FEATURES, count), 12 + count * STRING_BYTES
    )
    _ioctl(control, dev, names)
    numbers = set()
    for i in range(count):
        name = (
            names.raw[12 + i * STRING_BYTES : 12 + (i + 1) * STRING_BYTES].split(b"\0")[0].decode()
        )
        if name in BUNDLING:
            numbers.add(i)
    return count, frozenset(numbers)


class Offloads:
    """Offloads of the devices in the namespace of the constructing thread."""

    known: tuple[int, frozenset[int]] | None = None

    def __init__(self) -> None:
        self.control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def close(self) -> None:
        self.control.close()

    def turn_off(self, dev: str) -> None:
        """Turn off all offloads of `dev` that bundle packets.

        Raises:
            OSError: an offload stays on.
        """
        if Offloads.known is None:
            Offloads.known = _features(self.control, dev)
        count, bundling = Offloads.known
        blocks = (count + 31) // 32
        valid = [sum(1 << i % 32 for i in bundling if i // 32 == block) for block in range(blocks)]
        request = b"".join(struct.pack("=II", mask, 0) for mask in valid)
        _ioctl(
            self.control,
            dev,
            ctypes.create_string_buffer(struct.pack("=II", SFEATURES, blocks) + request),
        )
        features = ctypes.create_string_buffer(
            struct.pack("=II", GFEATURES, blocks), 8 + 16 * blocks
        )
        _ioctl(self.control, dev, features)
        for block, mask in enumerate(valid):
            _, _, active, _ = struct.unpack_from("=IIII", features.raw, 8 + 16 * block)
            if active & mask:
                raise OSError(
                    f"ethtool {dev}: offloads {active & mask:#x} of block {block} stay on"
                )
