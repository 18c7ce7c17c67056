"""Meanings and units of the columns of an experiment's rows.

An experiment declares a sentence for each figure.  The unit is the end of the column's name.  A *
in a declared name matches any text: up*_mean_queue_packets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

# by the last words of a name; the longest match counts
UNITS = {
    "bps": "bit/s",
    "gbps": "Gbit/s",
    "mbps": "Mbit/s",
    "s": "s",
    "ms": "ms",
    "us": "µs",
    "ns": "ns",
    "slots": "slots",
    "times": "times",
    "packet_times": "packet times",
    "packets": "packets",
    "bytes": "bytes",
    "kib": "KiB",
    "hops": "hops",
    "pairs": "pairs",
    "flows": "flows",
    "messages": "messages",
    "iterations": "iterations",
    "fraction": "fraction",
    "shares": "fractions",
    "ratio": "ratio",
    "slowdown": "times",
    "slowdowns": "times",
    "paths": "paths",
    "usd": "USD",
    "per_pair": "per pair",
    "per_flow": "per flow",
    "per_message": "per message",
    "per_1000_slots": "per 1000 slots",
    "by_flows": "",
    "of_all_pairs": "",
}
# columns that any row may have besides parameters and figures
CIRCUMSTANCES = {
    "seed": "seed of all randomness; equal seeds draw equal failures and traffic",
    "engine": "engine of the run: graph, fabric, packet or kernel",
    "clock": "clock of the kernel engine: real, or virtual (computing takes no time)",
    "virtual_s": "duration of the run by the virtual clock",
    "hop_ns": "processor time of a packet at each hop under the virtual clock",
    "syscall_ns": "processor time of a system call under the virtual clock",
    "fidelity": "PASS, WARN or FAIL: did the emulation keep up?",
    "run": "the run's id: a hash of experiment, version, parameters, seed, engine and clock",
}


class Column(NamedTuple):
    """A column; its unit is empty for counts, names and truth values."""

    name: str
    unit: str
    meaning: str


def unit(name: str) -> str:
    """Return the unit of the column called `name`."""
    return UNITS.get(suffix(name), "")


def suffix(name: str) -> str:
    """Return the part of the column's name that names its unit, empty without one."""
    words = name.split("_")
    ends = ["_".join(words[start:]) for start in range(len(words))]
    return next((end for end in ends if end in UNITS), "")


def explained(declared: Mapping[str, str]) -> list[Column]:
    """Return the declared columns, then those that any row may have."""
    return [
        Column(name, unit(name), meaning)
        for name, meaning in (*declared.items(), *CIRCUMSTANCES.items())
    ]


def unexplained(
    names: Iterable[str], declared: Mapping[str, str], parameters: Iterable[str]
) -> list[str]:
    """Return the columns that are neither parameters nor circumstances nor declared."""
    known = {*parameters, *CIRCUMSTANCES}
    return [name for name in names if name not in known and not meaning_of(name, declared)]


def meaning_of(name: str, declared: Mapping[str, str]) -> str:
    """Return the declared meaning of the column called `name`, or an empty text."""
    return declared.get(name) or next(
        (text for key, text in declared.items() if fnmatchcase(name, key)), ""
    )
