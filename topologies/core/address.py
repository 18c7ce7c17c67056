"""Node number <-> name, label and address.

A server's label is its place in the hierarchy, most significant digit first, and its address is 10
followed by the same digits, so that every sub-network is one prefix and the address can be worked
out in the head.

| network | label | address |
|---|---|---|
| DCell, beta-DCell, FiConn | s<x_k>. ... .<x_0>, the label of CCRDN section 3 | s1.0.3 is 10.1.0.3
|
| bcube | s<a_k>. ... .<a_0> | s1.3 is 10.0.1.3 |
| gqstar | s<u_(k-1)>. ... .<u_0>.<port of the switch> | s1.3.2 is 10.1.3.2 |
| fattree | s<pod>.<edge>.<host>; with n tiers the n digits of the host's code | s1.0.3 is 10.1.0.3
|
| clos, complete, slimfly and other equal routers | s<switch>.<host> | s1.3 is 10.0.1.3 |
| star | s<host> | s3 is 10.0.0.3 |

Up to three digits below 256 take a byte each, from the right.  Where a network has more digits, or
larger ones, each takes only as many bits as it needs, packed from the right: FiConn_{3,16} (digits
below 667, 37, 9, 16) uses
10 + 6 + 4 + 4 = 24 bits.

Switches that route have addresses too: 172.<16 + tier> followed by the digits of the name in the
same way, so that a0.1 (tier 2) is 172.18.0.1 and e12 (tier 1) is 172.17.0.12.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

SERVER_BLOCK = 10 << 24
SWITCH_BLOCK = 172 << 24 | 16 << 16
TIERS_WITH_ADDRESS = 15  # 172.16.0.0/12 holds 16 blocks of 16 bits, and tiers count from 1


def dotted(address: int) -> str:
    """Return the IPv4 address of an integer as text."""
    return f"{address >> 24}.{address >> 16 & 255}.{address >> 8 & 255}.{address & 255}"


class Prefix(NamedTuple):
    """The addresses whose first `length` bits are those of `network`."""

    network: int
    length: int

    def __str__(self) -> str:
        return f"{dotted(self.network)}/{self.length}"

    def holds(self, address: int) -> bool:
        return address >> (32 - self.length) == self.network >> (32 - self.length)


EVERYTHING = Prefix(0, 0)


class AddressFamily(NamedTuple):
    """A version of IP; a node's address ends with its IPv4 address.

    number: of the family in Linux.
    network: the beginning of addresses.
    next_hops: the beginning of next hops' addresses.
    bits: length of both.
    """

    number: int
    network: str = ""
    next_hops: str = ""
    bits: int = 0

    def address(self, address: int) -> str:
        """Return the address of the node whose IPv4 address is `address`."""
        return self.network + dotted(address)

    def next_hop(self, address: int) -> str:
        """Return the address by which routes name that node as their next hop."""
        return self.next_hops + dotted(address)

    def prefix(self, prefix: Prefix) -> str:
        """Return the addresses of the nodes whose IPv4 addresses `prefix` holds."""
        return f"{self.address(prefix.network)}/{self.bits + prefix.length}"


IPV4 = AddressFamily(2)
# A unique local prefix (RFC 4193) with the global identifier "weft"; link-local next hops, which
# need no route of their own.
IPV6 = AddressFamily(10, "fd77:6566:7400::", "fe80::", 96)


def covering(prefix: Prefix, table: Iterable[Prefix]) -> Prefix:
    """Return the longest prefix of `table` that covers `prefix`; ValueError without one."""
    return max(
        (other for other in table if other.length <= prefix.length and other.holds(prefix.network)),
        key=lambda other: other.length,
    )


@dataclass(frozen=True)
class AddressLayout:
    """Position of a label's digits in the last `bits` bits of addresses in `block`.

    Digits lie below `radices`, most significant first.

    Up to bits / 8 digits below 256 take a byte each, else each takes as few bits as it needs;
    always from the right.
    """

    radices: tuple[int, ...]
    block: int = SERVER_BLOCK
    bits: int = 24

    @cached_property
    def shifts(self) -> tuple[int, ...]:
        """Shift of each digit, most significant first; ValueError if there are too few bits."""
        if len(self.radices) * 8 <= self.bits and max(self.radices) <= 256:
            widths = [8] * len(self.radices)
        else:
            widths = [max(1, (radix - 1).bit_length()) for radix in self.radices]
        if sum(widths) > self.bits:
            shape, space = (
                "x".join(map(str, self.radices)),
                f"{dotted(self.block)}/{32 - self.bits}",
            )
            raise ValueError(
                f"labels of {shape} need {sum(widths)} bits of address; {space} has {self.bits}"
            )
        return tuple(sum(widths[i + 1 :]) for i in range(len(widths)))

    def address(self, digits: Sequence[int]) -> int:
        """Return the address of the node with this label."""
        return self.block | sum(
            digit << shift for digit, shift in zip(digits, self.shifts, strict=True)
        )

    def prefix(self, digits: Sequence[int]) -> Prefix:
        """Return the prefix of all nodes whose label begins with `digits`."""
        if not digits:
            return Prefix(self.block, 32 - self.bits)
        network = self.block | sum(
            digit << shift for digit, shift in zip(digits, self.shifts, strict=False)
        )
        return Prefix(
            network, 32 if len(digits) == len(self.radices) else 32 - self.shifts[len(digits) - 1]
        )

    def digits(self, address: int) -> tuple[int, ...]:
        """Return the label with this address; ValueError if there is none."""
        rest, label = address - self.block, []
        for radix, shift in zip(self.radices, self.shifts, strict=True):
            digit, rest = rest >> shift, rest & ((1 << shift) - 1)
            if not 0 <= digit < radix:
                raise ValueError(f"{dotted(address)} is no server's address")
            label.append(digit)
        return tuple(label)

    def label_of(self, number: int) -> tuple[int, ...]:
        """Return the label of node `number`: the number written in the mixed radices."""
        digits = []
        for radix in reversed(self.radices):
            number, digit = divmod(number, radix)
            digits.append(digit)
        return tuple(reversed(digits))

    def sizes(self, digits: Sequence[int]) -> list[int]:
        """Return how many labels begin with `digits` followed by 0, 1, .

        `digits` must be shorter than a label.
        """
        return [prod(self.radices[len(digits) + 1 :])] * self.radices[len(digits)]

    def number_of(self, digits: Sequence[int]) -> int:
        """Return the node with this label; ValueError if a digit is out of range or missing."""
        if len(digits) != len(self.radices):
            raise ValueError(
                f"no label {spelled(digits)}: they are {spelled([0] * len(self.radices))} .. "
                f"{spelled(self._last_label())}"
            )
        number = 0
        for digit, radix in zip(digits, self.radices, strict=True):
            if not 0 <= digit < radix:
                most = spelled(self._last_label())
                raise ValueError(f"label {spelled(digits)}: its digits are at most {most}")
            number = number * radix + digit
        return number

    def _last_label(self) -> list[int]:
        return [radix - 1 for radix in self.radices]


class Naming(ABC):
    """Names, labels and addresses of one network's nodes.

    Servers are h<number>, and s<label> says the same thing; switches are named by their family.
    """

    servers: int
    switches: int
    layout: AddressLayout

    @abstractmethod
    def switch_name(self, switch: int) -> str:
        """Return the name of the `switch`-th switch, counted from 0."""

    @abstractmethod
    def switch_number(self, text: str) -> int:
        """Return the switch with the name `text`, counted from 0; ValueError if there is none."""

    def switch_address(self, switch: int) -> int | None:
        """Return the address of the `switch`-th switch, None for a crossbar."""
        return None

    def name(self, node: int) -> str:
        """Return the name of `node`, on the command line and of its namespace."""
        return f"h{node}" if node < self.servers else self.switch_name(node - self.servers)

    def label(self, node: int) -> str:
        """Return a server's place in the hierarchy, s1.0.3, or a switch's name."""
        if node >= self.servers:
            return self.switch_name(node - self.servers)
        return "s" + spelled(self.layout.label_of(node))

    def node(self, text: str) -> int:
        """Return the node whose name or label is `text`; ValueError if there is none."""
        digits = parse_digits(text[1:])
        if text[:1] == "h" and len(digits) == 1:
            if digits[0] >= self.servers:
                raise ValueError(f"no server {text}: they are h0 .. h{self.servers - 1}")
            return digits[0]
        if text[:1] == "s" and digits:
            return self.layout.number_of(digits)
        return self.servers + self.switch_number(text)

    def address(self, node: int) -> int:
        """Return the IPv4 address of `node` as an integer.

        ValueError for a crossbar, which has none.
        """
        if node < self.servers:
            return self.layout.address(self.layout.label_of(node))
        address = self.switch_address(node - self.servers)
        if address is None:
            raise ValueError(f"{self.name(node)} is a crossbar and has no address")
        return address


class CrossbarNaming(Naming):
    """Names in a network of one kind of crossbars: the i-th is w<i>."""

    def switch_name(self, switch: int) -> str:
        return f"w{switch}"

    def switch_number(self, text: str) -> int:
        digits = parse_digits(text[1:])
        if text[:1] == "w" and len(digits) == 1 and digits[0] < self.switches:
            return digits[0]
        names = f"servers are h0 .. h{self.servers - 1}, switches w0 .. w{self.switches - 1}"
        raise ValueError(f"no node {text!r}: {names}")


def spelled(digits: Sequence[int]) -> str:
    """Return the digits of a label as text, 1.0.3."""
    return ".".join(map(str, digits))


def parse_digits(text: str) -> tuple[int, ...]:
    """Return the digits of the label `text`, 1.0.3; empty if it is not of that form."""
    parts = text.split(".")
    if all(part.isascii() and part.isdecimal() and len(part) < 9 for part in parts):
        return tuple(int(part) for part in parts)
    return ()


@dataclass(frozen=True)
class Tier:
    """Switches of a fabric at the same distance from the hosts.

    Names are `letter` and digits below `radices`.
    """

    letter: str
    radices: tuple[int, ...]

    @property
    def switches(self) -> int:
        return prod(self.radices)


class FabricNaming(Naming):
    """Names in a switch fabric: a switch is its tier's letter and its digits, e1.2.

    Tiers count from 1, at the hosts.

    Switches are numbered tier by tier from the hosts up, within a tier as their digits say.
    """

    def __init__(self, hosts: Sequence[int], tiers: Sequence[Tier]) -> None:
        """`hosts`: the radices of a host's label."""
        self.servers = prod(hosts)
        self.switches = sum(tier.switches for tier in tiers)
        self.layout = AddressLayout(tuple(hosts))
        self.tiers = tuple(tiers)
        self._layouts = [
            AddressLayout(tier.radices, SWITCH_BLOCK + (number << 16), 16)
            for number, tier in enumerate(tiers, 1)
        ]

    def tier(self, node: int) -> int:
        """Return the tier of `node`, 0 for a host."""
        return 0 if node < self.servers else self._place(node - self.servers)[0]

    def _place(self, switch: int) -> tuple[int, tuple[int, ...]]:
        """Return tier and digits of the `switch`-th switch."""
        for number, tier in enumerate(self.tiers, 1):
            if switch < tier.switches:
                return number, self._layouts[number - 1].label_of(switch)
            switch -= tier.switches
        raise ValueError(f"no such switch: there are {self.switches}")

    def switch_name(self, switch: int) -> str:
        tier, digits = self._place(switch)
        return self.tiers[tier - 1].letter + spelled(digits)

    def switch_number(self, text: str) -> int:
        digits = parse_digits(text[1:])
        before = 0
        for tier, layout in zip(self.tiers, self._layouts, strict=True):
            if text[:1] == tier.letter and len(digits) == len(tier.radices):
                if all(digit < radix for digit, radix in zip(digits, tier.radices, strict=True)):
                    return before + layout.number_of(digits)
                break
            before += tier.switches
        raise ValueError(
            f"no node {text!r}: servers are h0 .. h{self.servers - 1}, switches {self._ranges()}"
        )

    def _ranges(self) -> str:
        """Return the names of the switches as ranges, e0.0 .. e3.1, for an error message."""
        first = [tier.letter + spelled([0] * len(tier.radices)) for tier in self.tiers]
        last = [tier.letter + spelled([radix - 1 for radix in tier.radices]) for tier in self.tiers]
        return ", ".join(a if a == b else f"{a} .. {b}" for a, b in zip(first, last, strict=True))

    def switch_address(self, switch: int) -> int:
        tier, digits = self._place(switch)
        if tier > TIERS_WITH_ADDRESS:
            raise ValueError(
                f"{self.switch_name(switch)} has no address: 172.16.0.0/12 has room for 15 tiers"
            )
        return self._layouts[tier - 1].address(digits)
