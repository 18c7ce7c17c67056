"""Node number <-> name, label and address.

A server's label is its place in the hierarchy, most significant digit first, and its address is 10 followed by the same
digits, so that every sub-network is one prefix and the address can be worked out in the head: server 1.0.3 of a
DCell_{2,n} is 10.1.0.3.  Where a network has more than three digits, or one over 255, digits take only as many bits as
they need, packed from the right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

SERVER_BLOCK = 10 << 24


def dotted(address: int) -> str:
    """An IPv4 address, given as an integer, as text."""
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))


class Prefix(NamedTuple):
    """The addresses whose first `length` bits are those of `network`."""

    network: int
    length: int

    def __str__(self) -> str:
        return f"{dotted(self.network)}/{self.length}"

    def holds(self, address: int) -> bool:
        return address >> (32 - self.length) == self.network >> (32 - self.length)


@dataclass(frozen=True)
class Layout:
    """How labels of digits below `radices`, most significant first, lie in the 24 bits of 10.0.0.0/8."""

    radices: tuple[int, ...]

    @cached_property
    def shifts(self) -> tuple[int, ...]:
        """How far to the left each digit stands, most significant first; ValueError if they take over 24 bits."""
        if len(self.radices) <= 3 and max(self.radices) <= 256:
            widths = [8] * len(self.radices)
        else:
            widths = [max(1, (radix - 1).bit_length()) for radix in self.radices]
        if sum(widths) > 24:
            raise ValueError(f"labels of {'x'.join(map(str, self.radices))} need {sum(widths)} bits; 10.0.0.0/8 has 24")
        return tuple(sum(widths[i + 1 :]) for i in range(len(widths)))

    def address(self, digits: Sequence[int]) -> int:
        """The address of the server with this label."""
        return SERVER_BLOCK | sum(digit << shift for digit, shift in zip(digits, self.shifts, strict=True))

    def prefix(self, digits: Sequence[int]) -> Prefix:
        """The prefix of every server whose label begins with `digits`; all of them if there are none."""
        network = SERVER_BLOCK | sum(digit << shift for digit, shift in zip(digits, self.shifts, strict=False))
        if not digits:
            return Prefix(SERVER_BLOCK, 8)
        return Prefix(network, 32 if len(digits) == len(self.radices) else 32 - self.shifts[len(digits) - 1])

    def digits(self, address: int) -> tuple[int, ...]:
        """The label whose address() is `address`; ValueError if there is none."""
        rest, found = address - SERVER_BLOCK, []
        for radix, shift in zip(self.radices, self.shifts, strict=True):
            digit, rest = rest >> shift, rest & ((1 << shift) - 1)
            if not 0 <= digit < radix:
                raise ValueError(f"{dotted(address)} is no server's address")
            found.append(digit)
        return tuple(found)

    def label_of(self, number: int) -> tuple[int, ...]:
        """`number` written in the mixed radices: the label of the server with that number."""
        digits = []
        for radix in reversed(self.radices):
            number, digit = divmod(number, radix)
            digits.append(digit)
        return tuple(reversed(digits))

    def number_of(self, digits: Sequence[int]) -> int:
        """The server with this label; ValueError if a digit is out of range or one is missing."""
        if len(digits) != len(self.radices):
            raise ValueError(f"label {'.'.join(map(str, digits))} has {len(digits)} digits, expected {len(self.radices)}")
        number = 0
        for digit, radix in zip(digits, self.radices, strict=True):
            if not 0 <= digit < radix:
                raise ValueError(f"label {'.'.join(map(str, digits))}: {digit} is not below {radix}")
            number = number * radix + digit
        return number


class Naming(ABC):
    """Names, labels and addresses of one network's nodes.

    Servers are h<number>, and s<label> says the same thing; switches are named by their family.
    """

    servers: int
    switches: int
    layout: Layout

    @abstractmethod
    def switch_name(self, switch: int) -> str:
        """The name of the `switch`-th switch, counted from 0."""

    @abstractmethod
    def switch_number(self, text: str) -> int:
        """The switch, counted from 0, that switch_name() calls `text`; ValueError if there is none."""

    def switch_address(self, switch: int) -> int | None:
        """The address of the `switch`-th switch, None if it is a crossbar that has none."""
        return None

    def name(self, node: int) -> str:
        """What `node` is called, on the command line and as its namespace."""
        return f"h{node}" if node < self.servers else self.switch_name(node - self.servers)

    def label(self, node: int) -> str:
        """A server's place in the hierarchy, s1.0.3; a switch's name."""
        if node >= self.servers:
            return self.switch_name(node - self.servers)
        return "s" + ".".join(map(str, self.layout.label_of(node)))

    def node(self, text: str) -> int:
        """The node whose name or label is `text`; ValueError, in one line, if there is none."""
        if text[:1] == "h" and text[1:].isdecimal():
            if int(text[1:]) >= self.servers:
                raise ValueError(f"no server {text}: they are h0 .. h{self.servers - 1}")
            return int(text[1:])
        if text[:1] == "s" and all(part.isdecimal() for part in text[1:].split(".")):
            return self.layout.number_of([int(part) for part in text[1:].split(".")])
        return self.servers + self.switch_number(text)

    def address(self, node: int) -> int:
        """The IPv4 address of `node`, as an integer; ValueError for a crossbar, which has none."""
        if node < self.servers:
            return self.layout.address(self.layout.label_of(node))
        address = self.switch_address(node - self.servers)
        if address is None:
            raise ValueError(f"{self.name(node)} is a crossbar and has no address")
        return address
