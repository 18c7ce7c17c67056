"""The header of packets of the purified transport, big-endian, and their code points.

Every packet begins with 22 bytes, which behind Ethernet, IPv4 and UDP headers make a frame of 64;
of data, payload follows.  A switch that trims leaves these 64 bytes: what is cut off is seen by the
length alone.

| bytes | field    | data, kind 1             | ack, 2         | nack, 3        | pull, 4        |
|-------|----------|--------------------------|----------------|----------------|----------------|
| 1     | magic    | 0x6e                     | 0x6e           | 0x6e           | 0x6e           |
| 1     | kind     | 1                        | 2              | 3              | 4              |
| 1     | layer    | of the routes it takes   | of the packet  | of the packet  | of the last    |
|       |          |                          |                |                | packet         |
| 1     | detail   | window: packets unasked  | 1: was marked  | 1: another     | 0              |
|       |          |                          |                | layer may help |                |
| 4     | flow     | number of the message, which its sender uses once                            |
| 4     | sequence | of the packet, from 0    | of the packet  | of the packet  | 0              |
| 8     | number   | bytes of the message     | pulls so far   | pulls so far   | pulls so far   |
| 2     | payload  | bytes in each packet but | 0              | 0              | 0              |
|       |          | the last, with the rest  |                |                |                |

An ack says that a packet has come whole, a nack that only its header has.  No other layer helps
where a packet was trimmed before the link of its destination.  Pulls are the packets of the message
beyond its window that were asked for since it began, so that the next pull makes good a lost one.
"""

from __future__ import annotations

import struct

HEADER = struct.Struct(">BBBBIIQH")
LOWER_BYTES = 42  # Ethernet, IPv4 and UDP headers
HEADER_BYTES = LOWER_BYTES + HEADER.size  # of a frame: what a switch leaves when it trims

# Code points of the packets' DS field (RFC 2474), of those for local use.  SAI's proposal for
# packet trimming tells by them, too, whether a packet was trimmed before a link of a host (5 in its
# example) or between switches (7).
TRIMMABLE, CONTROL, TRIMMED, TRIMMED_AT_HOST = 3, 11, 7, 5
