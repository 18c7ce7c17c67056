"""The data plane's program: its variant for this kernel, its maps' sizes and its structures.

The structures are those of select_maps.h, as formats of `struct`.  struct switch_ is not among
them: it holds the rules' parameters and is packed by the field names of the compiled program
(btf.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from weft.daemons.core.scheme import SelectionRule
from weft.testbed.linux import btf, libbpf
from weft.testbed.plan.plane_selection import MOST_ROUTES
from weft.topologies.core.topology import Topology

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


PRIORITY = 20  # of the filter: after the filter of a silent failure, which drops packets
PROGRAM = "forward"
# by reader of queue lengths, the fastest first; none is for kernels without BTF
READERS = {"kfunc": "select.bpf.o", "probe": "select_probe.bpf.o", "none": "select_blind.bpf.o"}
LAYOUT = "select_blind.bpf.o"  # any variant: structures are the same in all
MOST_GROUPS = 1 << 17
MOST_DISTANT = 1 << 11  # switches between which distances are kept, in 32 MB
FLOWLETS_BITS = 19  # of all switches
LEAST_FLOWLET_BITS = 10  # of one switch
MOST_FLOWLET_BITS = 16  # of one switch, as in LetFlow

# a flow has two entries, at its first and last leaf
LEAST_FLOWS = 1 << 10
FLOWS_PER_HOST = 1 << 6
MOST_FLOWS = 1 << 18


def entries(topology: Topology, ports: int) -> dict[str, int]:
    """Return the number of entries of each map for `topology`, with port numbers below `ports`."""
    switches = topology.switches
    return {
        "ports": ports,
        "counted": ports,
        "switches": switches,
        "groups": room(topology),
        "memories": room(topology),
        **dict.fromkeys(("generations", "pending_states", "states", "long_queues"), switches),
        "distances": switches**2 if switches <= MOST_DISTANT else 1,
        "routes": MOST_ROUTES,  # a route takes memory only when it is set
        "cache": switches * CACHE_SLOTS,
        **dict.fromkeys(("flowlets", "recent_flows"), switches << flowlet_bits(switches)),
        "flows": min(MOST_FLOWS, max(LEAST_FLOWS, FLOWS_PER_HOST * topology.servers)),
    }


def room(topology: Topology) -> int:
    """Return the number of groups of all switches: two for each host at each switch, limited."""
    return topology.switches * min(MOST_GROUPS // topology.switches, 2 * topology.servers + 32)


def flowlet_bits(switches: int) -> int:
    """Return the binary logarithm of the number of flowlet entries of each switch."""
    return max(
        LEAST_FLOWLET_BITS, min(MOST_FLOWLET_BITS, FLOWLETS_BITS - (switches - 1).bit_length())
    )


# of struct switch_, for every rule
FIELDS = {"rule", "seed", "tier", "reader", "flowlet_bits", "digits", "hosts", "switches", "code"}


def switch_layout() -> btf.StructLayout:
    """Return the layout of struct switch_.

    Raises:
        BpfError: the program is not compiled, or from another version.
    """
    path = libbpf.DIRECTORY / LAYOUT
    layout = btf.layouts(path)["switch_"]
    if not layout.fields.keys() >= FIELDS:
        raise libbpf.BpfError(
            22, f"{path} is of another version than this program: `make bpf` compiles it anew"
        )
    return layout


def load(sizes: Mapping[str, int], rule: SelectionRule) -> tuple[str, libbpf.Object]:
    """Load the fastest variant that this kernel takes; return its reader of queue lengths and it.

    Args:
        sizes: number of entries by map.
        rule: its code is compiled into the program, if it has any.

    Raises:
        BpfError: the kernel takes no variant.
        ValueError: the rule's code does not compile, or the kernel's verifier refuses it.
    """
    from weft.testbed.data_plane import own_rule  # compilers, which daemons do without

    first: libbpf.BpfError | None = None
    for reader, name in READERS.items():
        try:
            path = own_rule.program(rule, name) if rule.code else libbpf.DIRECTORY / name
            return reader, libbpf.Object(path, entries=sizes)
        except libbpf.BpfError as error:
            first = first or error
            if own_rule.is_at_fault(rule, error):  # without queues it may pass, which is no answer
                break
    assert first
    own_rule.explain(rule, first)
    raise first
