"""Transports of simulated hosts: the purified transport (after NDP), TCP as in Linux, or none.

Under `plain` a host sends its messages one after the other, in order of their start.  No packet is
acknowledged, and none is sent again but with go_back_ns: go-back-N, as hosts of RoCE do it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from weft.daemons.transport.endpoint import (
    MOST_LAYERS,
    Backoff,
    LayerChoice,
    Parameters,
    timeout_ns,
)
from weft.testbed.packets.network import (
    CLASSIC_ECN,
    DCTCP,
    RACK,
    RENO,
    StreamParameters,
    TcpParameters,
)
from weft.topologies.core.grammar import integer, parse, unknown

WINDOW, MOST_WINDOW = 8, 255
ENTROPIES = 128  # of a host with links to several planes, at most; MRC has 128 to 256
JIFFY_NS = 1_000_000  # of a kernel with 1,000 ticks a second
SIMULATED_CONTROLS = ("reno", "cubic", "dctcp")
PARAMETERS = {
    "ndp": ("window", "retransmissions", "choice", "entropies"),
    "tcp": ("control", "start", "recovery", "small_queues"),
    "plain": ("rate_mbps", "skip_us", "go_back_ns"),
}
ACKNOWLEDGED, ALL = ("ndp", "tcp"), tuple(PARAMETERS)
MOST_RATE_MBPS, MOST_SKIP_US, MOST_GO_BACK_NS = 1_000_000, 10**9, 10**9
DATAGRAM_BYTES = 42  # of a frame's Ethernet, IPv4 and UDP headers
WORDS = {
    "retransmissions": ("among", "first"),
    "choice": tuple(choice.name.lower() for choice in LayerChoice),
    "start": ("first", "random"),
    "recovery": ("rack", "reno"),
}

NUMBERS = {
    "window": (1, MOST_WINDOW),
    "entropies": (1, MOST_LAYERS),
    "rate_mbps": (1, MOST_RATE_MBPS),
    "skip_us": (0, MOST_SKIP_US),
    "go_back_ns": (0, MOST_GO_BACK_NS),
    "small_queues": (0, 1),
}


class Transport(NamedTuple):
    """Transport of hosts.

    name: ndp, tcp or plain.
    window: of ndp, in packets.
    retransmissions: of ndp: `first` if switches send retransmitted packets before other data.
    choice: of ndp: rule for the layer, or the entropy value, of a packet
        (daemons/transport/endpoint.py).
    entropies: of ndp: entropy values of a message's packets, where switches have no layers; 0: 1,
        or about ENTROPIES on several planes.  Packets of a value take the same path under ecmp.
    control: congestion control of tcp.
    start: of tcp: a flow's first layer, `first` or `random`.
    recovery: of simulated tcp: `rack` as in Linux, or `reno` as in RFC 5681.
    small_queues: of simulated tcp: 1 if few packets of a flow wait in its host's queue, as in
        Linux; 0 if a whole window does, as in RFC 5681 and by default with recovery=reno.
    rate_mbps: of plain: of a host; 0: of its link.
    skip_us: of plain: time from which on receivers count what arrives.
    go_back_ns: of plain: a receiver drops packets that come early, and its host hears of it so much
        later (StreamParameters); 0: it keeps them.
    """

    name: str
    window: int = WINDOW
    retransmissions: str = "among"
    choice: str = "flow"
    entropies: int = 0
    control: str = "reno"
    start: str = "random"
    recovery: str = "rack"
    small_queues: int = 1
    rate_mbps: int = 0
    skip_us: int = 0
    go_back_ns: int = 0

    def plain(self, rate_bps: int, frame_bytes: int) -> StreamParameters:
        """Return the parameters of hosts without a transport, on links of `rate_bps`."""
        return StreamParameters(
            rate_bps=1_000_000 * self.rate_mbps or rate_bps,
            counted_from_ns=1000 * self.skip_us,
            go_back_ns=self.go_back_ns,
            frame_bytes=frame_bytes,
            header_bytes=DATAGRAM_BYTES,
        )

    def tcp(self, frame_bytes: int, *, rto_min_us: int, one_message: bool) -> TcpParameters:
        """Return the parameters of TCP.

        Args:
            frame_bytes: of a full packet on a link.
            rto_min_us: least retransmission timeout.
            one_message: see TcpParameters.
        """
        return TcpParameters(
            jiffy_ns=min(JIFFY_NS, 1000 * rto_min_us),
            rto_min_ns=1000 * rto_min_us,
            frame_bytes=frame_bytes,
            ecn=DCTCP if self.control == "dctcp" else CLASSIC_ECN,
            one_message=one_message,
            recovery=RENO if self.recovery == "reno" else RACK,
            cubic=self.control == "cubic",
            small_queues=self.small_queues,
        )

    def ndp(
        self, rate_bps: int, frame_bytes: int, *, layers: int = 1, seed: int = 0, planes: int = 1
    ) -> Parameters:
        """Return the parameters of the purified transport, see daemons/transport/endpoint.py.

        Args:
            rate_bps: of a link.
            frame_bytes: of a full packet.
            layers: of the switches.
            seed: of draws.
            planes: links of a host.

        Raises:
            ValueError: switches have layers, or entropy values do not spread evenly over planes.
        """
        if self.entropies and layers > 1:
            raise ValueError("ndp: entropies are for switches without layers; packets have layers")
        if self.entropies % planes:
            raise ValueError(
                f"ndp: entropies={self.entropies} do not spread evenly over {planes} planes"
            )
        host_bps = planes * rate_bps
        values = self.entropies or (ENTROPIES // planes * planes if planes > 1 else 1)
        # a dead path takes its part of a window, which must not count as so many timeouts in a row
        backoff = Backoff.WINDOW if values > 1 else Backoff.PACKET
        return Parameters(
            rate_bps=host_bps,
            window=self.window,
            layers=max(values, layers),
            frame_bytes=frame_bytes,
            timeout_ns=timeout_ns(host_bps, frame_bytes),
            seed=seed,
            choice=LayerChoice[self.choice.upper()],
            backoff=backoff,
        )


def transport(text: str, names: Collection[str] = ACKNOWLEDGED) -> Transport:
    """Return the transport that `text` names, one of `names`; ValueError for anything else."""
    name, settings = parse(text)
    if name not in names:
        raise ValueError(unknown("transport", name, names))
    for key, value in settings.items():
        if key not in PARAMETERS[name]:
            raise ValueError(unknown(f"parameter of {name}", key, PARAMETERS[name]))
        if key in WORDS and value not in WORDS[key]:
            raise ValueError(unknown(f"{name}: {key}", value, WORDS[key]))
    values: dict[str, Any] = dict(settings)
    for key in values.keys() & NUMBERS.keys():
        least, most = NUMBERS[key]
        values[key] = integer(name, key, settings[key], least=least, most=most)
    if values.get("recovery") == "reno":
        values.setdefault("small_queues", 0)
    return Transport(name, **values)


def check_simulated(parsed: Transport) -> None:
    """Raise ValueError unless simulated hosts have what the transport names."""
    if parsed.control not in SIMULATED_CONTROLS:
        raise ValueError(
            unknown("simulated congestion control", parsed.control, SIMULATED_CONTROLS)
        )
    if parsed.recovery == "reno" and parsed.control == "cubic":
        raise ValueError("tcp: recovery=reno has no control=cubic; the TCP of RFC 5681 has reno")
