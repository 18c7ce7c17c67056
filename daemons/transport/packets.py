"""The header of packets of the purified transport, big-endian, and their code points.

Every packet begins with 22 bytes, which behind Ethernet, IPv4 and UDP headers make a frame of 64;
of data, payload follows.  A switch that trims leaves these 64 bytes: what is cut off is seen by the
length alone.
"""

from __future__ import annotations

import struct

# magic, kind, layer, window or congested, flow, sequence, size or pulls, payload
HEADER = struct.Struct(">BBBBIIQH")
LOWER_BYTES = 42  # Ethernet, IPv4 and UDP headers
HEADER_BYTES = LOWER_BYTES + HEADER.size  # of a frame: what a switch leaves when it trims

# Code points of the packets' DS field (RFC 2474), of those for local use.  SAI's proposal for
# packet trimming tells by them, too, whether a packet was trimmed before a link of a host (5 in its
# example) or between switches (7).
TRIMMABLE, CONTROL, TRIMMED, TRIMMED_AT_HOST = 3, 11, 7, 5
