"""Cost of FatPaths' layers: the program at hosts, and a hop at a switch with many routes.

The program at hosts is run by the kernel on one packet after the other (BPF_PROG_TEST_RUN), each
time once, since a packet that has left in a layer is no more what it was; the median beside that of
a program that does nothing.  So every run finds what the system call left of the caches, which is
less than packets in a row would.  Packets carry their time, as those of TCP do.

The hop is measured as in forwarding.py: the kernel's own forwarding beside the data plane with the
routes of LAYERS layers to ROUTERS routers, from hosts that put packets into layers.  Run as root.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import statistics
import struct
import time
from contextlib import ExitStack

from bench.forwarding import Chains, arrived, hops_ns
from bench.report import Line, show
from weft.daemons.core import registry
from weft.daemons.fatpaths.forwarding import in_layer, tagged
from weft.daemons.fatpaths.scheme import Trigger
from weft.testbed.data_plane import layer_program
from weft.testbed.linux import btf, libbpf, netns
from weft.topologies.core.address import Prefix

LAYERS, ROUTERS = 9, 50
RUNS = 4000
TEST_RUN, SYS_BPF = 10, 321 if os.uname().machine == "x86_64" else 280
CLASSIFIER = 3
TEST = struct.Struct("=IIIIQQIIIIQQIII4x")  # the part of union bpf_attr for BPF_PROG_TEST_RUN
CONTEXT = struct.Struct("=152xQ32x")  # struct __sk_buff: tstamp
SOURCE, DESTINATION, TCP = 10 << 24 | 1, 10 << 24 | 9, 6
PAYLOAD_BYTES = 1400
MOST_NS = 150


def packet(seq: int, destination: int) -> bytes:
    """A TCP segment in its frame; checksums are not looked at."""
    tcp = struct.pack(">HHIIBBHHH", 5000, 5201, seq & 0xFFFFFFFF, 1, 5 << 4, 0x10, 1000, 0, 0)
    length = 20 + len(tcp) + PAYLOAD_BYTES
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, length, 1, 0x4000, 64, TCP, 0, SOURCE, destination)
    return bytes(12) + b"\x08\x00" + ip + tcp + bytes(PAYLOAD_BYTES)


def run_ns(program: int, data: bytes) -> int:
    """Return the time that `program` takes for a packet; OSError if the kernel cannot say."""
    given, room = ctypes.create_string_buffer(data, len(data)), ctypes.create_string_buffer(2048)
    context = ctypes.create_string_buffer(CONTEXT.pack(time.monotonic_ns()), CONTEXT.size)
    where = [ctypes.addressof(each) for each in (given, room, context)]
    asked = ctypes.create_string_buffer(
        TEST.pack(
            program, 0, len(data), len(room), *where[:2], 1, 0, CONTEXT.size, 0, where[2], *[0] * 4
        )
    )
    if netns.libc.syscall(SYS_BPF, TEST_RUN, asked, TEST.size) < 0:
        raise OSError(
            ctypes.get_errno(), f"BPF_PROG_TEST_RUN: {errno.errorcode.get(ctypes.get_errno())}"
        )
    return int(TEST.unpack(asked.raw[: TEST.size])[7])


def host_costs() -> dict[str, float]:
    """Nanoseconds that leaving and arriving take beyond a program that does nothing, by trigger."""
    found = {}
    layout = btf.layouts(libbpf.DIRECTORY / layer_program.PROGRAM)["settings"]
    with libbpf.Object(
        libbpf.DIRECTORY / layer_program.PROGRAM, entries={"flows": 1 << 16}
    ) as loaded:
        nothing = libbpf.trivial_program(CLASSIFIER)
        chosen = loaded.map("all_settings", "=I", f"={layout.size}s")
        for name in ("none", "gap", "cut", "gap-cut-ecn"):
            chosen[0,] = (layout.pack(registry.rule(f"fatpaths:trigger={name}").hosts),)
            taken = {
                what: statistics.median(
                    run_ns(program, packet(PAYLOAD_BYTES * i, destination)) for i in range(RUNS)
                )
                for what, program, destination in (
                    ("nothing", nothing, DESTINATION),
                    ("leaving", loaded.program_fd(layer_program.LEAVE), DESTINATION),
                    ("arriving", loaded.program_fd(layer_program.ARRIVE), in_layer(DESTINATION, 2)),
                )
            }
            found |= {
                f"{what}, trigger={name}": taken[what] - taken["nothing"]
                for what in ("leaving", "arriving")
            }
        os.close(nothing)
    return found


def layered(stack: ExitStack) -> Chains:
    """Chains whose hosts choose layers, and whose switches have the routes of all of them."""
    made = Chains(stack, planes=True)
    settings = {
        **registry.rule("fatpaths").hosts,
        "layers": LAYERS,
        "trigger": Trigger.GAP | Trigger.CUT,
    }
    for network, plane in zip(made.networks, made.planes, strict=True):
        plane.set_scheme("fatpaths")
        others = [Prefix(10 << 24 | 1 << 16 | router << 8, 24) for router in range(ROUTERS - 1)]
        wanted = [Prefix(network.plan.address(1), 32), *others]
        for node in plane.switches:
            ports = [network.ifindex(node, 1)]
            plane.groups[node].set(
                {tagged(prefix, layer): ports for prefix in wanted for layer in range(LAYERS)}
            )
        layer_program.attach(network, settings)
    return made


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--packets", type=int, default=60_000, help="in each measurement")
    given.add_argument("--rounds", type=int, default=7)
    options = given.parse_args()
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    lines = [Line(what, ns, "ns", at_most=MOST_NS) for what, ns in host_costs().items()]
    with ExitStack() as stack:
        chains = {"plain": Chains(stack, planes=False), "layers": layered(stack)}
        hop_ns = hops_ns(chains, packets=options.packets, rounds=options.rounds, cpu=cpu)
        fraction = arrived(chains)
    lines.append(Line("the kernel's IPv4 forwarding: a hop", hop_ns["plain"], "ns"))
    lines.append(
        Line("layers: a hop / the kernel's", hop_ns["layers"] / hop_ns["plain"], "x", at_most=1.0)
    )
    lines.append(Line("packets that arrived / sent", fraction["layers"], "x", at_least=0.999))
    show("Layers", lines)


if __name__ == "__main__":
    main()
