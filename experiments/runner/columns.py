"""What the columns of an experiment's rows mean, and in which unit each is.

An experiment declares a sentence for each figure that its runs may give.  The unit is the end of
the column's name, so that no table can say another one.  A name may hold a *, for what depends on
the network: up*_mean_queue_packets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

# By the last words of a name; the longest that fits counts.
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
# Columns that any row may have beside its parameters and figures.
CIRCUMSTANCES = {
    "seed": "what everything random was drawn from; equal seeds draw equal failures and traffic",
    "engine": "what ran: graph, fabric or kernel",
    "clock": "of the kernel engine: real, or virtual (computing takes no time)",
    "virtual_s": "how long the run took by the virtual clock",
    "hop_ns": "what a packet took of the processor at each hop under the virtual clock",
    "syscall_ns": "what a system call took of the calling process under the virtual clock",
    "fidelity": "whether the emulation kept up: PASS, WARN or FAIL",
    "run": "the run's id: a hash of experiment, version, parameters, seed, engine and clock",
}


class Column(NamedTuple):
    """unit: empty for counts, names and truth values."""

    name: str
    unit: str
    meaning: str


def unit(name: str) -> str:
    """The unit of the column called `name`."""
    words = name.split("_")
    ends = ["_".join(words[at:]) for at in range(len(words))]
    return next((UNITS[end] for end in ends if end in UNITS), "")


def explained(declared: Mapping[str, str]) -> list[Column]:
    """The declared columns, and after them those that any row may have."""
    return [
        Column(name, unit(name), meaning)
        for name, meaning in (*declared.items(), *CIRCUMSTANCES.items())
    ]


def unexplained(
    names: Iterable[str], declared: Mapping[str, str], parameters: Iterable[str]
) -> list[str]:
    """Those of the columns `names` that are no parameter and no circumstance, and that `declared`
    does not have."""
    known = {*parameters, *CIRCUMSTANCES}
    return [name for name in names if name not in known and not meaning_of(name, declared)]


def meaning_of(name: str, declared: Mapping[str, str]) -> str:
    """What `declared` says of the column called `name`; empty if nothing."""
    return declared.get(name) or next(
        (text for key, text in declared.items() if fnmatchcase(name, key)), ""
    )
