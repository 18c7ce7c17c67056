"""Rate, queue, delay and loss of a link, and their units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

kbps = 1_000
Mbps = 1_000_000
Gbps = 1_000_000_000
LEAST_BPS = 8_000
MOST_BPS = 1_000 * Gbps  # a full frame takes 12 ns then, and the kernel counts whole nanoseconds
MOST_PACKETS = (1 << 32) - 1  # the kernel counts them in 32 bits
MOST_HOP_NS = 1_000_000_000
MOST_DELAY_US = 3_600_000_000  # an hour
ALL_PPB = 1_000_000_000
ETHERNET_BYTES = 14  # of a frame's header
MTU_BYTES = 1_500  # what daemons say must fit
MOST_MTU_BYTES = 9_216  # of the longest jumbo frames that switches know
MOST_TRIM_PACKETS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class LinkSpec:
    """One direction of a link.

    Every field is an integer that ends in its unit and keeps that name in results, in JSON and on
    the axis of a plot.
    """

    rate_bps: int  # what tc counts: Ethernet header included, preamble, check sequence and gap not
    queue_packets: int  # waiting to be sent, full size or not
    delay_us: int = 0  # propagation, one way
    # full packets of data that wait before switches trim what follows to headers; 0: never
    trim_packets: int = 0
    # headers that wait then, by a queue of their own: as many as 8 packets of 9000 bytes
    header_packets: int = 1125
    loss_ppb: int = 0  # of a billion packets that arrive, how many are lost, each on its own
    # processor time for each packet at the receiving node, which handles them one by one
    hop_ns: int = 0
    mtu_bytes: int = MTU_BYTES  # the longest packet, IP header included

    def __post_init__(self) -> None:
        for name, least, most in (
            ("rate_bps", LEAST_BPS, MOST_BPS),
            ("queue_packets", 1, MOST_PACKETS),
            ("delay_us", 0, MOST_DELAY_US),
            ("trim_packets", 0, MOST_TRIM_PACKETS),
            ("header_packets", 1, MOST_PACKETS),
            ("hop_ns", 0, MOST_HOP_NS),
            ("loss_ppb", 0, ALL_PPB),
            ("mtu_bytes", MTU_BYTES, MOST_MTU_BYTES),
        ):
            value = getattr(self, name)
            if isinstance(value, float | str):
                raise ValueError(f"link: {name} must be an integer, got {value!r}")
            if value < least:
                raise ValueError(f"link: {name} must be at least {least}, got {value}")
            if value > most:
                raise ValueError(f"link: {name} must be at most {most}, got {value}")
        if self.trim_packets > self.queue_packets:
            raise ValueError(
                f"link: a queue of {self.queue_packets} packets drops before "
                f"{self.trim_packets} wait to be trimmed"
            )

    @property
    def frame_bytes(self) -> int:
        """Length of the longest frame, Ethernet header included."""
        return self.mtu_bytes + ETHERNET_BYTES


def rate_bps(text: str) -> int:
    """Return bits per second from "20mbit", "1gbit", "800kbit" or a plain number.

    ValueError otherwise.
    """
    units = {"gbit": Gbps, "mbit": Mbps, "kbit": kbps, "bit": 1, "": 1}
    rate = _scaled(text, units, "rate", "20mbit")
    if str(rate) == text and rate < LEAST_BPS:
        raise ValueError(
            f"rate: {text!r} has no unit and means {text} bit/s; write it as in 20mbit"
        )
    return rate


def delay_us(text: str, quantity: str = "delay") -> int:
    """Return microseconds from "1ms", "250us" or "1s"; ValueError otherwise, also for 0.5us."""
    units = {"ms": 1_000, "us": 1, "s": 1_000_000, "ns": 0.001}
    return _scaled(text, units, quantity, "1ms")


def loss_ppb(text: str) -> int:
    """Return packets of a billion from "0.5" or "0.5%" of them; ValueError otherwise."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise ValueError(f"loss: per cent of packets, 0 to 100, got {text!r}")
    return round(percent * ALL_PPB / 100)


def _scaled(text: str, units: Mapping[str, float], quantity: str, example: str) -> int:
    digits = text.strip().lower()
    unit = digits.lstrip("0123456789.")
    number = digits[: len(digits) - len(unit)]
    try:
        value = float(number) * units[unit]
        whole = int(value)
    except (KeyError, ValueError, OverflowError):
        raise ValueError(
            f"{quantity}: {text!r} is not a {quantity}; write it as in {example}"
        ) from None
    if value != whole:
        smallest = next(unit for unit, scale in units.items() if scale == 1)
        raise ValueError(f"{quantity}: {text!r} is not a whole number of {smallest}")
    return whole
