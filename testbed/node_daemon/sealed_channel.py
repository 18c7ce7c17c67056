"""Seal the messages that leave a port; accept each message that a neighbour sealed, once.

    payload | number, 8 bytes | sender, 4 | cookie, 4 | tag, 12

tag: keyed BLAKE2s (RFC 7693) of all bytes before it.  The key is the run's, personalized by the
    link, so that a message verifies on its own link only.
number: the sender's monotonic clock in ns, or its last number + 1 if that is larger.  All daemons
    on a machine share the clock, and a number ahead of it is refused, so that no message can
    exhaust the numbers to come.  Numbers of neighbours on other machines have no such bound.  A
    window of WINDOW messages accepts reordered ones, each number once.
sender: one of the nodes at this port, not the receiver itself.
cookie: a function of key and link.  A socket filter compares it, so that a stranger's message takes
    no room in the socket; it proves nothing to a process that can read the link.

A message that does not verify is dropped without an answer, and counted.  A token bucket for each
neighbour passes MESSAGES_PER_S, so that a faulty neighbour does not starve the others.

All daemons of a run share one key: it excludes other processes, not a compromised node.

Incarnations and sequence numbers must not fall when a daemon restarts.  They are a row of words for
each node, in a file of the run that every process maps, as in counters.py.  Each number is one
aligned word, written when it changes, so that it survives its daemon.  A message to one daemon
cannot be replayed to the next, and a wall clock that is set back makes no incarnation smaller.

    incarnation, then for each port: last number sent, and the largest number received by neighbour

The keys of a run are in a file that only root may read.  The first key seals the messages that
daemons send; all keys open messages that they receive.  A key is replaced in three steps, each
announced to every daemon before the next: the new key opens, too; it seals; the old key opens no
more.  No message is refused meanwhile, and a daemon that starts between two steps works with those
before and after it.
"""

from __future__ import annotations

import mmap
import os
import struct
from _blake2 import blake2s
from _operator import _compare_digest as same  # likewise hmac.compare_digest
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Protocol

from weft.daemons.core import wire
from weft.testbed.linux import clock
from weft.testbed.linux.interface import NodeInterfaces
from weft.testbed.runs import private_files

# hashlib.blake2s without hashlib, which loads OpenSSL: 3 MB that no daemon needs


COOKIE_BYTES, TAG_BYTES = 4, 12
END = struct.Struct(f">QI{COOKIE_BYTES}s")  # number, sender, cookie
END_BYTES = END.size
WINDOW = 256  # messages
AHEAD_NS = 1_000_000  # messages sealed at one instant of a virtual clock lead it by 1 ns each
NUMBER_BYTES = 8
# of one neighbour; more than any scheme sends
MESSAGES_PER_S, MESSAGES_AT_ONCE = 2000, 2000
FORGED, REPLAYED, FUTURE = "forged", "replayed", "from the future"  # reasons of drops
STRANGE, TOO_MANY = "of no neighbour", "too many"
SEQUENCE_FILE = "sequences"
WORD = 8


class PortChannel(Protocol):
    """Seals and opens the messages of one port.

    dropped: messages, by reason.
    cookies: accepted cookies; empty if messages are not sealed.
    """

    dropped: Counter[str]
    cookies: Sequence[bytes]

    def seal(self, payload: bytes) -> bytes:
        """Return the frame to send for `payload`."""

    def open(self, frame: bytes, now: float) -> bytes | None:
        """Return the payload of a frame received at `now`; None if it is dropped."""

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Use these keys from now on; the first one seals.  A run never changes to or from none."""


class Allowance:
    """The token bucket of one neighbour, refilled when it is empty."""

    __slots__ = ("filled_s", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        self.filled_s = -inf

    def refill(self, now: float) -> bool:
        """Refill the bucket, whose count is below 0, and take a token; False if there is none."""
        earned = min((now - self.filled_s) * MESSAGES_PER_S, MESSAGES_AT_ONCE)
        if earned < 1:
            self.tokens = 0
            return False
        self.tokens = int(earned) - 1
        self.filled_s = now
        return True


class Sender(Allowance):
    """The numbers accepted from one neighbour.

    recent: the largest of them in ascending order, at most WINDOW and at least one.
    floor: numbers up to this one are refused.
    """

    __slots__ = ("floor", "index", "recent")

    def __init__(self, index: int, largest: int) -> None:
        """Refuse numbers up to `largest`, which word `index` of the node's row keeps."""
        super().__init__()
        self.index = index
        self.floor = largest
        self.recent = [largest]

    def accept(self, number: int) -> bool:
        """Return True if `number` is new, and remember it."""
        recent = self.recent
        if number > recent[-1]:
            recent.append(number)
        else:
            place = bisect_left(recent, number)
            if number <= self.floor or recent[place] == number:
                return False
            recent.insert(place, number)
        if len(recent) > WINDOW:
            self.floor = recent.pop(0)
        return True


class Sealed:
    """A port whose messages are sealed.

    link: number of the link, the same at all its ends.
    row: sequence numbers of the node.
    elsewhere: neighbours on other machines.
    """

    __slots__ = (
        "_elsewhere",
        "_end",
        "_hash",
        "_link",
        "_node",
        "_others",
        "_senders",
        "_sent_at",
        "_words",
        "cookies",
        "dropped",
    )

    def __init__(
        self,
        node: int,
        port: int,
        link: int,
        keys: Sequence[bytes],
        row: SequenceRow,
        elsewhere: Collection[int] = (),
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._node, self._link = node, link.to_bytes(8, "big")
        self._elsewhere = elsewhere
        self._words, self._sent_at, heard_at = row.at(port)
        self._senders = {
            near: Sender(index, self._words[index]) for near, index in heard_at.items()
        }
        self.set_keys(keys)

    def set_keys(self, keys: Sequence[bytes]) -> None:
        hashes = [blake2s(key=key, person=self._link, digest_size=TAG_BYTES) for key in keys]
        self._hash, *self._others = hashes
        self.cookies: Sequence[bytes] = tuple(
            blake2s(b"cookie", key=key, person=self._link, digest_size=4).digest() for key in keys
        )
        self._end = END.pack(0, self._node, self.cookies[0])[NUMBER_BYTES:]

    def seal(self, payload: bytes) -> bytes:
        words, index, number = self._words, self._sent_at, clock.monotonic_ns()
        if number <= words[index]:
            number = words[index] + 1
        words[index] = number
        body = payload + number.to_bytes(NUMBER_BYTES, "big") + self._end
        tag = self._hash.copy()
        tag.update(body)
        return body + tag.digest()

    def open(self, frame: bytes, now: float) -> bytes | None:
        body = frame[:-TAG_BYTES]
        tag = self._hash.copy()
        tag.update(body)
        if not same(tag.digest(), frame[-TAG_BYTES:]) and not self._verifies(frame):
            self.dropped[FORGED] += 1
            return None
        number, near, _ = END.unpack_from(body, len(body) - END_BYTES)
        try:
            sender = self._senders[near]
        except KeyError:
            self.dropped[STRANGE] += 1
            return None
        if near not in self._elsewhere and self._is_ahead(number, now):
            self.dropped[FUTURE] += 1
            return None
        if not sender.accept(number):
            self.dropped[REPLAYED] += 1
            return None
        self._words[sender.index] = sender.recent[-1]
        sender.tokens -= 1
        if sender.tokens < 0 and not sender.refill(now):
            self.dropped[TOO_MANY] += 1
            return None
        return body[:-END_BYTES]

    def _is_ahead(self, number: int, now: float) -> bool:
        # the clock, which takes a system call under a virtual one, is read for doubtful ones only
        return number > 1e9 * now + AHEAD_NS and number > clock.monotonic_ns() + AHEAD_NS

    def _verifies(self, frame: bytes) -> bool:
        """Return True if a key other than the one that seals here sealed `frame`."""
        for keyed in self._others:
            tag = keyed.copy()
            tag.update(frame[:-TAG_BYTES])
            if same(tag.digest(), frame[-TAG_BYTES:]):
                return True
        return False


class Bare:
    """A port without seals, for experiments: a process on the link can forge any neighbour.

    neighbours: senders that are accepted, for schemes that do not check the sender themselves; each
        adds a token bucket.
    """

    cookies: Sequence[bytes] = ()

    def __init__(self, neighbours: Collection[int]) -> None:
        self.dropped: Counter[str] = Counter()
        self._names = {node.to_bytes(4, "big") for node in neighbours}
        self._allowances = [Allowance() for _ in range(max(1, len(neighbours)))]

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Ignore the keys: nothing is sealed."""

    def seal(self, payload: bytes) -> bytes:
        return payload

    def open(self, frame: bytes, now: float) -> bytes | None:
        if frame[wire.SENDER] not in self._names and wire.is_ours(frame):
            self.dropped[STRANGE] += 1
            return None
        for allowance in self._allowances:
            allowance.tokens -= 1
            if allowance.tokens >= 0 or allowance.refill(now):
                return frame
        self.dropped[TOO_MANY] += 1
        return None


def row_words(neighbours: Iterable[int]) -> int:
    """Return the length of a node's row; `neighbours`: their number at each port."""
    return 1 + sum(1 + count for count in neighbours)


def create_sequences(directory: Path, nodes: int, words_each: int) -> None:
    """Create the file for `nodes` nodes."""
    with open(
        os.open(directory / SEQUENCE_FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600),
        "r+b",
    ) as file:
        file.write(words_each.to_bytes(WORD, "little"))
        file.truncate((1 + nodes * words_each) * WORD)


class SequenceRow:
    """The words of one node.

    ports: the neighbours at each port.
    """

    def __init__(self, words: memoryview, ports: Mapping[int, Iterable[int]]) -> None:
        self._words = words
        self._indexes: dict[int, tuple[int, dict[int, int]]] = {}
        first = 1
        for port in sorted(ports):
            near = sorted(ports[port])
            received = {node: first + 1 + i for i, node in enumerate(near)}
            self._indexes[port] = first, received
            first += 1 + len(near)

    def next_incarnation(self) -> int:
        """Return the larger of the ns since 1970 and the last incarnation + 1; record it."""
        self._words[0] = incarnation = max(clock.wall_ns(), self._words[0] + 1)
        return incarnation

    def at(self, port: int) -> tuple[memoryview, int, dict[int, int]]:
        """Return the words and the indexes of `port`.

        These are the index of the last number sent, and of the largest received by neighbour.
        """
        return self._words, *self._indexes[port]


class SequenceFile:
    """The rows of a run's nodes."""

    def __init__(self, directory: Path) -> None:
        """Map the file of the run in `directory`."""
        fd = os.open(directory / SEQUENCE_FILE, os.O_RDWR | os.O_NOFOLLOW)
        try:
            self._words = memoryview(mmap.mmap(fd, 0)).cast("Q")
        finally:
            os.close(fd)
        self._row_words = int.from_bytes(self._words[:1].tobytes(), "little")

    def row(self, node: int, ports: Mapping[int, Iterable[int]]) -> SequenceRow:
        """Return the row of `node`; see SequenceRow."""
        first = 1 + node * self._row_words
        return SequenceRow(self._words[first : first + self._row_words], ports)


KEY_FILE = "key"
KEY_BYTES = 32


def create_keys(directory: Path, *, authenticated: bool = True, key: bytes | None = None) -> None:
    """Create the key of the run in `directory`, `key` or a new one.

    The file is empty without `authenticated`.
    """
    _write_keys(directory, [key or os.urandom(KEY_BYTES)] if authenticated else [])


def read_keys(directory: Path) -> tuple[bytes, ...]:
    """Return the keys of the run in `directory`, the sealing key first.

    Returns:
        Empty if messages are not authenticated.

    Raises:
        ValueError: there is no such file, or it is malformed.
    """
    try:
        keys = tuple(bytes.fromhex(line) for line in (directory / KEY_FILE).read_text().split())
    except FileNotFoundError:
        raise ValueError(
            f"run {directory.name} has no file of keys, {directory / KEY_FILE}"
        ) from None
    except ValueError:
        keys = (b"",)
    if any(len(key) != KEY_BYTES for key in keys):
        raise ValueError(
            f"{directory / KEY_FILE}: a line of it is no key of {KEY_BYTES} bytes in hexadecimal"
        )
    return keys


def rotate_keys(directory: Path, announce: Callable[[], None]) -> None:
    """Replace the sealing key by a new one.

    Args:
        directory: of the run.
        announce: has every daemon read the file again.  If it raises, both keys stay valid: call
            rotate() again.

    Raises:
        ValueError: the run's messages are not authenticated.
    """
    before = read_keys(directory)
    if not before:
        raise ValueError(
            f"run {directory.name} does not authenticate what its daemons say, so it has no "
            f"key to replace"
        )
    old, new = before[0], os.urandom(KEY_BYTES)
    for keys in ([old, new], [new, old], [new]):
        _write_keys(directory, keys)
        announce()


def _write_keys(directory: Path, keys: Sequence[bytes]) -> None:
    private_files.replace(directory / KEY_FILE, "".join(f"{key.hex()}\n" for key in keys).encode())


class Credentials:
    """The credentials of one node.

    row: sequence numbers of the node.
    read_keys: reads the run's keys.
    """

    def __init__(
        self, interfaces: NodeInterfaces, row: SequenceRow, read_keys: Callable[[], Sequence[bytes]]
    ) -> None:
        self._interfaces = interfaces
        self.row = row
        self.read_keys = read_keys

    def channels(self, ports: Iterable[int]) -> list[PortChannel]:
        """Return the channels that seal and open the messages of these ports."""
        keys = self.read_keys()
        return [self._channel(port, keys) for port in ports]

    def _channel(self, port: int, keys: Sequence[bytes]) -> PortChannel:
        interface = self._interfaces.ports[port]
        if not keys:
            return Bare(list(interface.neighbours))
        node, elsewhere = self._interfaces.node, interface.elsewhere
        return Sealed(node, port, interface.link, keys, self.row, elsewhere)


class RunCredentials:
    """The credentials of all nodes of the run in `directory`.

    Raises ValueError or OSError if the run has none.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sequences = SequenceFile(directory)
        read_keys(directory)

    def of(self, interfaces: NodeInterfaces) -> Credentials:
        """Return the credentials of the node with these interfaces."""
        row = self._sequences.row(interfaces.node, _near(interfaces))
        return Credentials(interfaces, row, partial(read_keys, self._directory))


def rehearsed(nodes: Sequence[NodeInterfaces]) -> list[Credentials]:
    """Return credentials that these nodes share with no others, in memory only."""
    key = os.urandom(KEY_BYTES)
    credentials = []
    for interfaces in nodes:
        lengths = (len(interface.neighbours) for interface in interfaces.ports.values())
        row = memoryview(bytearray(8 * row_words(lengths))).cast("Q")
        sequence_row = SequenceRow(row, _near(interfaces))
        credentials.append(Credentials(interfaces, sequence_row, lambda: (key,)))
    return credentials


def _near(interfaces: NodeInterfaces) -> dict[int, list[int]]:
    return {port: list(interface.neighbours) for port, interface in interfaces.ports.items()}
