"""The ends of cut links on one machine: their carriers follow the ends on other machines.

A tunnel has no carrier of its own.  Every HELLO_S, and as soon as an end here is set up or down,
an agent tells each peer which ends of their common links are down here; the peer takes the carrier
of its ends of these links.  A peer that is silent for LATE_S loses them all until it is heard
again.  Silent failures change no end's state, so they stay silent.

A message is as long as a full frame in its tunnel and is never fragmented: one
that arrives proves the underlay's MTU.

Messages between two agents about the links that are cut between their machines:

    seal, 32 bytes | [sender, receiver, beat, number, down] in JSON, padded with spaces

seal: HMAC-SHA256 of the rest, by the run's key.
beat: the count of the last beat that the sender had from the controller.
number: larger than that of the sender's last message.
down: the links whose end at the sender is down.

All messages are of one length.  A message counts if its beat and number exceed those of the last
one.  The controller tells beats over a connection that the key does not open, and every agent at
about the same time, so that one far ahead is refused.  Whatever number a holder of the key invents,
messages of the true sender count again AHEAD + 1 beats later.

All else is dropped and counted; no message raises.
"""

from __future__ import annotations

import hmac
import json
import socket
import subprocess
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from ipaddress import IPv4Address
from typing import NamedTuple

import psutil

from weft.testbed.cluster.leases import LATE_S, Leases
from weft.testbed.linux import clock, interface, netns
from weft.testbed.linux.interface import Interface, NodeInterfaces
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.network.handle import Handle
from weft.testbed.node_daemon.sealed_channel import FORGED, FUTURE, REPLAYED, STRANGE
from weft.testbed.node_daemon.sockets import LinkNews

SEAL_BYTES = 32
AHEAD = 2  # beats: one agent may have the next beat already, another still miss one
MALFORMED = "malformed"
HELLO_S = 0.1
FRAME_OVERHEAD_BYTES = 22  # of a tunnel behind its UDP header: VXLAN and Ethernet headers
TUNNEL_BYTES = FRAME_OVERHEAD_BYTES + 28  # with IP and UDP headers
IP_MTU, IP_MTU_DISCOVER, IP_PMTUDISC_DO = 14, 10, 2


class Words(NamedTuple):
    """Content of a message, without its seal."""

    sender: str
    receiver: str
    beat: int
    number: int
    down: list[int]


class PeerChannel:
    """The messages of one agent.

    dropped: messages, by reason.
    beat: the count of the last beat.
    """

    def __init__(self, machine: str, cut: Mapping[int, str], key: bytes, length: int) -> None:
        """Begin with no message.

        Args:
            machine: this one.
            cut: the machine of the far end of each cut link, by link.
            key: of the run.
            length: of all messages, in bytes.
        """
        self._machine, self._key, self._length = machine, key, length
        self._links: dict[str, set[int]] = defaultdict(set)
        for link, peer in cut.items():
            self._links[peer].add(link)
        self._number = 0
        self._last = dict.fromkeys(self._links, (0, 0))
        self.beat = 0
        self.dropped: Counter[str] = Counter()

    def links(self, peer: str) -> AbstractSet[int]:
        """Return the links that are cut between this machine and `peer`."""
        return self._links[peer]

    def seal(self, peer: str, down: Iterable[int]) -> bytes:
        """Return the next message to `peer`."""
        self._number += 1
        words = Words(self._machine, peer, self.beat, self._number, sorted(down))
        body = json.dumps(words).encode().ljust(self._length - SEAL_BYTES)
        return self._seal(body) + body

    def open(self, message: bytes) -> tuple[str, set[int]] | None:
        """Return the sender and its links that are down; None if the message does not count."""
        body = message[SEAL_BYTES:]
        if not hmac.compare_digest(message[:SEAL_BYTES], self._seal(body)):
            self.dropped[FORGED] += 1
            return None
        words = _words_from(body)
        reason = self._objection(words) if words else MALFORMED
        if reason or not words:
            self.dropped[reason] += 1
            return None
        self._last[words.sender] = words.beat, words.number
        return words.sender, set(words.down)

    def _seal(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")

    def _objection(self, words: Words) -> str:
        """Return the reason why a message does not count; empty if it does."""
        if words.receiver != self._machine or words.sender not in self._last:
            return STRANGE
        if not self.links(words.sender) >= set(words.down):
            return MALFORMED
        if words.beat > self.beat + AHEAD:
            return FUTURE
        if (words.beat, words.number) <= self._last[words.sender]:
            return REPLAYED
        return ""


def _words_from(body: bytes) -> Words | None:
    """Return the words of a message; None if it is malformed."""
    try:
        words = Words(*json.loads(body))
        names = [words.sender, words.receiver]
        numbers = [words.beat, words.number, *words.down]
    except (ValueError, TypeError, RecursionError):
        return None
    # True and 1.0 are no numbers of a message
    are_whole = all(type(number) is int and number >= 0 for number in numbers)
    return words if are_whole and all(isinstance(name, str) for name in names) else None


def require_address(address: str) -> None:
    """Raise ValueError unless this machine has the IPv4 address; the line says which it has."""
    own = [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET and not IPv4Address(entry.address).is_loopback
    ]
    if address not in own:
        raise ValueError(f"{address} is no address of it; it has {', '.join(own) or 'none'}")


def route_mtu(local: str, remote: str) -> int:
    """Return the MTU of the route from address `local` to `remote`.

    Raises:
        OSError: there is no route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((local, 0))
        probe.connect((remote, 9))
        return probe.getsockopt(socket.IPPROTO_IP, IP_MTU)


def start_pings(local: str, remote: str) -> subprocess.Popen[str]:
    """Start some pings from address `local` to `remote`, for one_way_us()."""
    command = ["ping", "-n", "-q", "-c", "16", "-i", "0.002", "-W", "1", "-I", local, remote]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def one_way_us(pings: subprocess.Popen[str], local: str, remote: str) -> int:
    """Return half of the least round trip of start_pings() with the same addresses.

    Raises:
        OSError: no ping was answered.
    """
    output, _ = pings.communicate()
    if pings.returncode:
        raise OSError(f"{remote} does not answer pings from {local}: let ICMP echo pass")
    _, _, times_ms = output.rpartition("= ")  # min/avg/max/mdev
    return round(500 * float(times_ms.partition("/")[0]))


class CutLinks:
    """The ends of cut links of an open part.

    channel: opens and seals messages.
    leases: of peers.
    waiting: peers that no message has come from yet.
    lost: peers that were heard, and are silent.
    """

    def __init__(self, network: Handle, key: bytes) -> None:
        """Begin to watch the ends of `network`, which has a part; `key` seals messages."""
        part = network.plan.part
        assert part
        self._network = network
        self._part = part
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._udp.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        self._udp.setblocking(False)
        self._udp.bind((part.address, part.port + 1))
        self._down: set[int] = set()  # links whose end here is down
        self._bare: set[int] = set()  # links whose end here has no carrier
        length = network.plan.mtu_bytes + FRAME_OVERHEAD_BYTES
        self.channel = PeerChannel(part.machine, part.cut, key, length)
        self._next_s = clock.monotonic()
        self.leases = Leases(self._next_s, HELLO_S)
        self.waiting = set(part.peers)
        self.lost: set[str] = set()
        self._news = {news.socket.fileno(): (node, news) for node, news in self._open_news()}

    def _open_news(self) -> Iterable[tuple[int, LinkNews]]:
        """Yield a node with cut links, and a subscription to changes of their ends."""
        plan = self._network.plan
        ports: dict[int, dict[int, Interface]] = defaultdict(dict)
        for node, port, end in plan.cut_ends:
            ports[node][port] = Interface(end.ifindex, end.dev, {}, end.link)
        for node, cut_ports in ports.items():
            interfaces = NodeInterfaces(node, plan.names[node], plan.namespace(node), 0, cut_ports)
            with netns.inside(self._network.netns(node)), self._network.at(node) as requests:
                yield node, LinkNews(interfaces, requests)

    def descriptors(self) -> list[int]:
        """Return the descriptors that handle() waits for."""
        return [self._udp.fileno(), *self._news]

    def handle(self, descriptor: int) -> None:
        """Handle what waits at one of descriptors()."""
        if descriptor == self._udp.fileno():
            self._receive()
        else:
            self._read_news(*self._news[descriptor])

    def _read_news(self, node: int, news: LinkNews) -> None:
        changed = set()
        for change in news.read():
            link = self._network.plan.ends[node][change.port].link
            if change.is_set_up == (link in self._down):
                self._down ^= {link}
                changed.add(self._part.cut[link])
        for peer in changed:
            self._send(peer)

    def tick(self) -> float:
        """Send what is due, take the carriers of links to silent peers; return when to call again.

        Returns:
            Seconds from now.
        """
        now_s = clock.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + HELLO_S
            self.leases.turn(now_s)
            self.lost = self.leases.silent(LATE_S)
            for peer in self._part.peers:
                self._send(peer)
                if peer in self.lost:
                    self._set_bare(peer, self.channel.links(peer))
        return self._next_s - now_s

    def _send(self, peer: str) -> None:
        message = self.channel.seal(peer, self._down.intersection(self.channel.links(peer)))
        with suppress(OSError):  # no route for now, or too long for the path: silence says so
            self._udp.sendto(message, (self._part.peers[peer], self._part.port + 1))

    def _receive(self) -> None:
        try:
            data = self._udp.recv(1 << 16)
        except OSError:  # none waits, or an error of an earlier send
            return
        news = self.channel.open(data)
        if news is None:
            return
        peer, down = news
        self.leases.renew(peer)
        if peer in self.waiting:
            self.waiting.discard(peer)
            self._send(peer)  # it may have begun after the last message to it
        self.lost.discard(peer)
        self._set_bare(peer, down)

    def _set_bare(self, peer: str, bare: Collection[int]) -> None:
        """Take the carriers of the links `bare` to `peer`, and give those of the others back."""
        changed = self._bare.symmetric_difference(bare).intersection(self.channel.links(peer))
        messages: dict[int, list[NetlinkMessage]] = defaultdict(list)
        for link in changed:
            for node, _, end in self._network.both_ends(link):
                messages[node].append(interface.set_carrier(end, link not in bare))
        for node, batch in messages.items():
            with self._network.at(node) as requests:
                requests.request(batch)
        self._bare ^= changed

    def close(self) -> None:
        """Stop watching."""
        self._udp.close()
        for _, news in self._news.values():
            news.close()
