"""A message at its sender: the next packet, and the state of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tests.daemons.transport.packet_layers import Answer, TurnedLayers, layers_of
from tests.daemons.transport.packets import Ack, Data, Nack, Pull, packets_of
from weft.daemons.core.mixing import mixed
from weft.daemons.transport.endpoint import (
    LONGEST_BACKOFF,
    MOST_PACKETS,
    Backoff,
    Parameters,
    reason,
)

UNSENT, IN_FLIGHT, REFUSED, ACKNOWLEDGED = range(4)


class OutgoingMessage:
    """Message `flow` of `size_bytes` to host `peer`.

    A packet is sent for each of `credits`: the first window brings some, every pull one.  Packets
    whose header came back refused go first.  A packet about which nothing is heard for a timeout is
    asked after by its bare header, which the receiver answers as one that a switch has trimmed: so
    no payload is ever sent that was not pulled, but the window.

    listed: whether it waits for its turn to send; its endpoint's.
    retransmissions, timeouts: packets sent again, and packets asked after.
    failed: why it was given up, None while it was not.
    """

    def __init__(
        self, flow: int, peer: int, size_bytes: int, parameters: Parameters, now: int
    ) -> None:
        self.flow, self.peer, self.size_bytes = flow, peer, size_bytes
        self.packets = packets_of(size_bytes, parameters.payload_bytes)
        if not 0 < self.packets <= MOST_PACKETS:
            most = MOST_PACKETS * parameters.payload_bytes
            raise ValueError(f"transport: a message has 1 to {most} bytes, got {size_bytes}")
        self.credits = min(parameters.window, self.packets)
        self.listed, self.retransmissions, self.timeouts = False, 0, 0
        self.failed: str | None = None
        self._parameters = parameters
        self._draws = 0
        self.layer = self._draw(parameters.layers)
        self._state = bytearray(self.packets)
        self._next, self._acknowledged, self._pulls = 0, 0, 0
        self._choice = layers_of(
            parameters.choice, parameters.layers, parameters.window, self.layer
        )
        self._arrived, self.probes_at = 0, 0
        self._in_flight: dict[int, int] = {}  # packet -> when it was sent, the earliest first
        self._layer_of: dict[int, int] = {}  # packet -> layer by which it was sent last
        self._refused: deque[int] = deque()  # some of them acknowledged meanwhile
        self._refusals = 0
        self._heard_at, self._silences, self._silent_at = now, 0, 0

    @property
    def done(self) -> bool:
        """Return True if every packet is acknowledged."""
        return self._acknowledged == self.packets

    @property
    def may_send(self) -> bool:
        """Return True if a packet may be sent now."""
        return (
            self.failed is None
            and self.credits > 0
            and (self._refusals > 0 or self._next < self.packets)
        )

    def send(self, now: int) -> Data:
        """The next packet, which is sent now; only if may_send."""
        self.credits -= 1
        if self._refusals:
            self.retransmissions += 1
            return self._sent(self._pop_refused(), now)
        self._next += 1
        return self._sent(self._next - 1, now)

    def acknowledged(self, ack: Ack, now: int) -> None:
        """Handle the acknowledgement of a packet."""
        self._heard(ack.pulls, now)
        if self._choice:
            self._choice.answered(ack.layer, Answer.MARKED if ack.congested else Answer.GOOD, now)
        state = self._state[ack.sequence] if ack.sequence < self.packets else ACKNOWLEDGED
        if state in (UNSENT, ACKNOWLEDGED):
            return
        if state == IN_FLIGHT:
            del self._in_flight[ack.sequence]
        else:
            self._refusals -= 1
        self._state[ack.sequence] = ACKNOWLEDGED
        self._arrived = ack.sequence
        self._acknowledged += 1

    def refused(self, nack: Nack, now: int) -> None:
        """Handle the news that a packet was trimmed to its header."""
        self._heard(nack.pulls, now)
        if nack.sequence < self.packets and self._state[nack.sequence] == IN_FLIGHT:
            del self._in_flight[nack.sequence]
            self._state[nack.sequence] = REFUSED
            self._refused.append(nack.sequence)
            self._refusals += 1
        if self._choice:
            self._choice.answered(
                nack.layer, Answer.TRIMMED if nack.congested else Answer.GOOD, now
            )
        elif nack.congested:
            self._leave(nack.layer)

    def pulled(self, pull: Pull, now: int) -> None:
        """Handle a pull from the receiver."""
        self._heard(pull.pulls, now)

    def deadline(self) -> int | None:
        """When to ask after the packet that has been in flight longest, or for the pulls that do
        not come; None while the message waits for its turn.
        """
        if self._in_flight:
            sent_at = next(iter(self._in_flight.values()))
            return sent_at + self.timeout_ns(sent_at)
        return None if self.may_send else self._heard_at + self.timeout_ns(self._heard_at)

    def timeout_ns(self, sent_at: int) -> int:
        """Return the timeout of a packet sent at `sent_at`, which grows with each silence."""
        silences = self._silences - self._is_of_last_silence(sent_at)
        return self._parameters.timeout_ns << min(silences, LONGEST_BACKOFF)

    def _is_of_last_silence(self, sent_at: int) -> bool:
        by_window = self._parameters.backoff == Backoff.WINDOW
        return by_window and self._silences > 0 and sent_at < self._silent_at

    def expire(self, now: int) -> Iterator[Data]:
        """Packets whose bare headers are to be sent now, when the deadline has come.

        None if it is given up.
        """
        again = any(map(self._is_of_last_silence, self._in_flight.values()))
        if not again and self._silences == self._parameters.attempts:
            left = self.packets - self._acknowledged
            self.failed = reason(self.peer, now - self._heard_at, left, self.packets)
            return
        late = [packet for packet, at in self._in_flight.items() if at + self.timeout_ns(at) <= now]
        if not again:
            self._silences, self._silent_at = self._silences + 1, now
        silent = [self._layer_of[packet] for packet in late]
        for packet in late:
            del self._in_flight[packet]
        if not late and not self._in_flight:
            if self._refusals:
                late = [self._pop_refused()]
            else:
                late, self._next = [self._next], self._next + 1
        self.timeouts += len(late)
        for number, packet in enumerate(late):
            if silent and self._choice:
                until = now + (self._parameters.timeout_ns << LONGEST_BACKOFF)
                self._choice.silent(silent[number], until)
            elif silent:
                self._leave(silent[number])
            yield self._sent(packet, now)

    @property
    def bad_layers(self) -> set[int]:
        """Return the layers that MRC takes for bad."""
        return self._choice.bad if isinstance(self._choice, TurnedLayers) else set()

    def probe(self) -> list[Data]:
        """Bare headers of a packet that has arrived, by each bad layer."""
        return [self._data(self._arrived, layer) for layer in sorted(self.bad_layers)] * (
            self._acknowledged > 0
        )

    def _leave(self, layer: int) -> None:
        """Take another layer, unless `layer` has been left since."""
        layers = self._parameters.layers
        if layers > 1 and layer == self.layer:
            self.layer = (self.layer + 1 + self._draw(layers - 1)) % layers

    def _heard(self, pulls: int, now: int) -> None:
        self._heard_at, self._silences = now, 0
        if pulls > self._pulls:
            self.credits += pulls - self._pulls
            self._pulls = pulls

    def _pop_refused(self) -> int:
        while self._state[packet := self._refused.popleft()] != REFUSED:
            pass
        self._refusals -= 1
        return packet

    def _sent(self, packet: int, now: int) -> Data:
        if self._choice:
            self.layer = self._choice.next(now, self._word())
        self._layer_of[packet] = self.layer
        self._state[packet] = IN_FLIGHT
        self._in_flight[packet] = now
        return self._data(packet, self.layer)

    def _data(self, packet: int, layer: int) -> Data:
        parameters = self._parameters
        return Data(
            self.flow,
            packet,
            layer,
            parameters.window,
            self.size_bytes,
            parameters.payload_bytes,
        )

    def _draw(self, n: int) -> int:
        return self._word() % n

    def _word(self) -> int:
        self._draws += 1
        origin = mixed(self._parameters.seed, self.flow << 32 | self.peer)
        return mixed(origin, self._draws)
