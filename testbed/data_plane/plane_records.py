"""Structures of select_maps.h, shared with the data plane's program, as formats of `struct`.

struct switch_ is missing here: it holds the rules' parameters and is packed by the field names of
the compiled program (btf.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

CANDIDATES = 64  # of a group
CACHE_BITS = 10  # of the slot of a destination in the cache, for each switch
CACHE_SLOTS = 1 << CACHE_BITS
GENERATIONS = 1 << 12


class Record(NamedTuple):
    """A struct: its name in C, and by name of each field the integers or bytes in it."""

    name: str
    fields: Mapping[str, str]

    @property
    def format(self) -> str:
        """Return the format of the whole structure."""
        return "=" + "".join(self.fields.values())


PORT = Record(
    "port",
    {
        "switch_number": "I",
        "addresses": "12s",
        "number": "I",
        "turn": "I",
        "trim_bytes": "I",
        "trimmed_as": "I",
    },
)
PREFIX = Record("prefix", {"length": "I", "switch_number": "I", "address": "4s"})
GROUP = Record("group", {"n": "I", "ports": f"{CANDIDATES}I"})
FLOW_KEY = Record(
    "flow_key",
    {"switch_number": "I", "source": "I", "destination": "I", "protocol": "I", "ports": "I"},
)
FLOW = Record(
    "flow_entry",
    {
        "last_ns": "Q",
        "moved_ns": "Q",
        "queued_ns": "Q",
        "bytes": "Q",
        "port": "I",
        "sequence": "I",
    },
)
LONG_QUEUE = Record("long_queue", {"flow": "20s", "port": "I"})
COUNTERS = Record(
    "counters",
    {
        "packets": "Q",
        "bytes": "Q",
        "moved": "Q",
        "marked": "Q",
        "bypassed": "Q",
        "trimmed": "Q",
        "untrimmed": "Q",
    },
)
