"""Transports of simulated hosts: the purified transport (after NDP), TCP as in Linux, or none.

Under `plain` a host sends its messages one after the other, in order of their start.  No packet is
acknowledged, and none is sent again but with go_back_ns: go-back-N, as hosts of RoCE do it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from weft.daemons.transport.endpoint import (
    MOST_LAYERS,
    MOST_WINDOW,
    WINDOW,
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
from weft.topologies.core.family import IntegerParameter
from weft.topologies.core.grammar import parse, unknown

ENTROPIES = 128  # of a host with links to several planes, at most; MRC has 128 to 256
JIFFY_NS = 1_000_000  # of a kernel with 1,000 ticks a second
SIMULATED_CONTROLS = ("reno", "cubic", "dctcp")
LABELS = ("none", "stays", "prr", "plb")  # in the order of tcp_machine.h
SUMMARIES = {
    "tcp": "TCP as in Linux; connections are open before",
    "ndp": "receivers pull packets, and switches trim them to headers, after NDP",
    "plain": "no transport: a host sends its messages one after the other, and nothing again",
}
PARAMETERS: Mapping[str, Mapping[str, IntegerParameter]] = {
    "ndp": {
        "window": IntegerParameter(
            f"packets of a message that are sent before the receiver asks; without it {WINDOW}, or "
            "on several planes as many for each",
            1,
            MOST_WINDOW,
            optional=True,
        ),
        "retransmissions": IntegerParameter.word(
            "packets sent again leave switches among other data, or first", ("among", "first")
        ),
        "choice": IntegerParameter.word(
            "layer, or entropy value, of a packet: its message's, a random one, one that an answer "
            "came from (reps, scout, spray), or all in turn but those that lost a packet (mrc)",
            (choice.name.lower() for choice in LayerChoice),
        ),
        "entropies": IntegerParameter(
            "entropy values of packets where switches have no layers; without it 1, or about "
            f"{ENTROPIES} on several planes; packets of a value take the same path under ecmp",
            1,
            MOST_LAYERS,
            optional=True,
        ),
    },
    "tcp": {
        "control": IntegerParameter.word("congestion control", SIMULATED_CONTROLS),
        "start": IntegerParameter.word(
            "first layer of a flow: layer 0, or a random one", ("first", "random"), default="random"
        ),
        "recovery": IntegerParameter.word(
            "recovery of losses: rack as in Linux, or reno as in RFC 5681", ("rack", "reno")
        ),
        "small_queues": IntegerParameter.flag(
            "1: few packets of a flow wait in its host's queue, as in Linux; 0: a whole window "
            "does, as in RFC 5681 and by default with recovery=reno",
            default=True,
        ),
        "label": IntegerParameter.word(
            "IPv6 flow label, which switches hash: none over IPv4, one that stays, or is drawn "
            "again after a timeout (prr, as in Linux), and also after many marks (plb)",
            LABELS,
        ),
        "plb_rounds": IntegerParameter(
            "marked rounds in a row after which label=plb draws a label", 1, 31, default=12
        ),
    },
    "plain": {
        "rate_mbps": IntegerParameter(
            "rate of a host in Mbit/s; without it that of its link", 1, 1_000_000, optional=True
        ),
        "skip_us": IntegerParameter(
            "microseconds from which on receivers count what arrives", 0, 10**9, default=0
        ),
        "go_back_ns": IntegerParameter(
            "go-back-N: nanoseconds after which a host hears that its receiver dropped a packet "
            "which came early; 0: receivers keep such packets",
            0,
            10**9,
            default=0,
        ),
    },
}
DEFAULTS: Mapping[str, Any] = {
    key: parameter.words[parameter.default or 0] if parameter.words else parameter.default or 0
    for parameters in PARAMETERS.values()
    for key, parameter in parameters.items()
}
ACKNOWLEDGED, ALL = ("ndp", "tcp"), tuple(PARAMETERS)
DATAGRAM_BYTES = 42  # of a frame's Ethernet, IPv4 and UDP headers
SEGMENT_BYTES, IPV6_BYTES = 66, 20  # with TCP and its time stamps; what an IPv6 header is longer


class Transport(NamedTuple):
    """Transport of hosts.

    name: ndp, tcp or plain; the others are its PARAMETERS, 0 for one without a value.
    """

    name: str
    window: int
    retransmissions: str
    choice: str
    entropies: int
    control: str
    start: str
    recovery: str
    small_queues: int
    label: str
    plb_rounds: int
    rate_mbps: int
    skip_us: int
    go_back_ns: int

    @property
    def header_bytes(self) -> int:
        """Return the bytes of a frame that are no payload, under TCP or without a transport."""
        if self.name == "plain":
            return DATAGRAM_BYTES
        return SEGMENT_BYTES + (IPV6_BYTES if self.label != "none" else 0)

    def packets_unasked(self, planes: int = 1) -> int:
        """Return the packets of a message that ndp sends before they are asked for."""
        return self.window or min(MOST_WINDOW, WINDOW * planes)

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
            label=LABELS.index(self.label),
            plb_rounds=self.plb_rounds,
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
            window=self.packets_unasked(planes),
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
    values: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in PARAMETERS[name]:
            raise ValueError(unknown(f"parameter of {name}", key, PARAMETERS[name]))
        parameter = PARAMETERS[name][key]
        if key == "control":  # Linux has others, see check_simulated()
            values[key] = value
        else:
            number = parameter.value(name, key, value)
            values[key] = parameter.words[number] if parameter.words else number
    if values.get("recovery") == "reno":
        values.setdefault("small_queues", 0)
    return Transport(name, **{**DEFAULTS, **values})


def check_linux(parsed: Transport, names: Collection[str] = ("tcp",)) -> None:
    """Raise ValueError unless hosts of Linux have the transport, one of `names`."""
    if parsed.name not in names:
        raise ValueError(f"transport {parsed.name} needs --engine packet")
    for name in ("retransmissions", "recovery", "small_queues", "label"):
        if (value := getattr(parsed, name)) != DEFAULTS[name]:
            raise ValueError(f"{parsed.name}: {name}={value} needs --engine packet")


def check_simulated(parsed: Transport) -> None:
    """Raise ValueError unless simulated hosts have what the transport names."""
    if parsed.control not in SIMULATED_CONTROLS:
        raise ValueError(
            unknown("simulated congestion control", parsed.control, SIMULATED_CONTROLS)
        )
    if parsed.recovery == "reno" and parsed.control == "cubic":
        raise ValueError("tcp: recovery=reno has no control=cubic; the TCP of RFC 5681 has reno")
    if parsed.label == "plb" and (parsed.control, parsed.recovery) != ("dctcp", "rack"):
        raise ValueError("tcp: label=plb counts rounds of DCTCP; take control=dctcp, recovery=rack")
