"""Flow control of simulated links, and cut-through.

    credits:room_kb=64,output_kb=0  a sender has credits for the room behind its link (InfiniBand)
    pause:room_kb=64,resume_kb=32   a node lets it pause above room_kb (IEEE 802.1Qbb), one class

With flow control no node trims or drops a packet that it forwards.  output_kb: of a buffer at each
output port, whose packets leave the room behind the link over which they came to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weft.topologies.core.grammar import integer, parse, unknown
from weft.topologies.core.link import LinkSpec

NONE = "none"  # links lose packets
ROOM_KB, MOST_KB = 64, 1_000_000
PARAMETERS = {"credits": ("room_kb", "output_kb"), "pause": ("room_kb", "resume_kb")}
HEAD_BYTES = 64  # of a frame, that a node has read when it forwards under cut-through


class Switching(NamedTuple):
    """Properties of all links.

    room_bytes: of a node for frames that came over a link; 0: links lose packets.
    resume_bytes: 0: credits; else the room in use at which a paused sender goes on.
    cut_through_bytes: of a frame, from which on a node forwards it; 0: all of it.
    output_bytes: of an output buffer.
    node_ns: time that a node takes to forward a packet.
    """

    room_bytes: int = 0
    resume_bytes: int = 0
    cut_through_bytes: int = 0
    output_bytes: int = 0
    node_ns: int = 0


def switching(flow_control: str, links: Sequence[LinkSpec], *, cut_through: bool) -> Switching:
    """Return how nodes pass packets on.

    Args:
        flow_control: as above, or NONE.
        links: all links of the network.
        cut_through: True if a node forwards a packet as soon as it has its first HEAD_BYTES.

    Raises:
        ValueError: the text is malformed, no packet fits, or links differ under cut-through.
    """
    rates = {link.rate_bps for link in links}
    if cut_through and len(rates) > 1:
        raise ValueError("cut-through needs links of one rate: a faster one would run dry")
    head_bytes = HEAD_BYTES if cut_through else 0
    if flow_control == NONE:
        return Switching(cut_through_bytes=head_bytes)
    kind = flow_control.partition(":")[0]
    if kind not in PARAMETERS:
        raise ValueError(unknown("flow control", kind, [NONE, *PARAMETERS]))
    name, settings = parse(flow_control)
    for key in settings:
        if key not in PARAMETERS[name]:
            raise ValueError(unknown(f"parameter of {name}", key, PARAMETERS[name]))
    room, resume, output = _sizes(name, settings)
    longest = max(link.frame_bytes for link in links)
    if room < longest:
        raise ValueError(f"{name}: room_kb={room // 1000}: a packet of {longest} bytes needs room")
    if 0 < output < longest:
        raise ValueError(
            f"{name}: output_kb={output // 1000}: a packet of {longest} bytes needs room"
        )
    return Switching(room, resume, head_bytes, output)


def _sizes(name: str, settings: dict[str, str]) -> tuple[int, int, int]:
    """Return room, bytes at which a paused sender goes on, and those of an output buffer."""
    text = settings.get("room_kb", str(ROOM_KB))
    room_kb = integer(name, "room_kb", text, least=1, most=MOST_KB)
    if name == "credits":
        output = integer(name, "output_kb", settings.get("output_kb", "0"), least=0, most=MOST_KB)
        return 1000 * room_kb, 0, 1000 * output
    text = settings.get("resume_kb", str(max(1, room_kb // 2)))
    return 1000 * room_kb, 1000 * integer(name, "resume_kb", text, least=1, most=room_kb), 0
