"""The queue of a port that trims."""

from collections import Counter

from tests.daemons.transport.endpoint import Transmission
from tests.daemons.transport.packets import Ack, Data
from tests.daemons.transport.trimming_queue import LinkModel, TrimmingQueue, frame_of
from weft.daemons.simulator.wires import CALL, EventQueue
from weft.daemons.transport.endpoint import HEADER_BYTES, TRIMMED, TRIMMED_AT_HOST

RATE = 10**9
FULL = 1450


class Port:
    """A queue, and what came out of it."""

    def __init__(self, draw=lambda: 0.9, to_host=False, **link):
        self.events, self.out = EventQueue(), []
        at = lambda time_ns, call: self.events.push(time_ns, CALL, call)  # noqa: E731
        self.queue = TrimmingQueue(
            LinkModel(rate_bps=RATE, delay_ns=7, **link), to_host, draw, at, self.deliver
        )

    def deliver(self, frame):
        self.out.append((self.events.now, frame))

    def data(self, count, again=False, own=False):
        for sequence in range(count):
            packet = Data(1, sequence, 0, 8, 1 << 30, FULL)
            self.queue.put(0, frame_of(0, Transmission(1, packet, FULL, again)), own=own)

    def acks(self, count):
        for sequence in range(count):
            self.queue.put(0, frame_of(0, Transmission(1, Ack(2, sequence, 0, 0), 0)))

    def run(self):
        self.events.run_until(10**9)
        return self.out


def test_a_frame_takes_its_time_on_the_link():
    port = Port()
    port.data(2)
    assert [at for at, _ in port.run()] == [12112 + 7, 2 * 12112 + 7]


def test_what_does_not_fit_arrives_as_headers_and_first():
    port = Port()
    port.data(12)
    frames = [frame for _, frame in port.run()]
    assert [frame.length_bytes for frame in frames] == [1514] + 3 * [HEADER_BYTES] + 8 * [1514]
    assert [frame.packet.sequence for frame in frames] == [0, 9, 10, 11, *range(1, 9)]
    assert {frame.code_point for frame in frames[1:4]} == {TRIMMED}
    assert (port.queue.counters.trimmed, port.queue.counters.most_data_bytes) == (3, 8 * 1514)


def test_a_link_to_a_host_tells_so():
    port = Port(to_host=True)
    port.data(10)
    assert [frame.code_point for _, frame in port.run()][1] == TRIMMED_AT_HOST


def test_the_last_place_is_drawn_for():
    draws = iter([0.4, 0.6, 0.4])
    port = Port(draw=lambda: next(draws))
    port.data(11)
    sequences = [frame.packet.sequence for _, frame in port.run()]
    assert sequences[1:3] == [8, 10]  # trimmed; 9 has the place
    assert sequences[-1] == 9


def test_headers_have_ten_times_the_share():
    port = Port()
    port.data(9)
    port.acks(200)
    kinds = [type(frame.packet).__name__ for _, frame in port.run()]
    assert kinds[:12] == ["Data", *["Ack"] * 10, "Data"]
    assert Counter(kinds) == {"Data": 9, "Ack": 200}


def test_headers_are_lost_where_their_queue_is_full_and_counted():
    port = Port(header_bytes=5 * HEADER_BYTES)
    port.data(1)
    port.acks(20)
    assert len(port.run()) == 6
    assert port.queue.counters.headers_lost == 15


def test_hosts_trim_nothing():
    port = Port()
    port.data(100, own=True)
    assert [frame.length_bytes for _, frame in port.run()] == [1514] * 100


def test_retransmitted_packets_go_first_and_have_a_queue_of_their_own():
    port = Port(retransmissions_first=True)
    port.data(7)
    port.data(7, again=True)
    again = [frame.retransmitted for _, frame in port.run()]
    assert again == [False, *[True] * 7, *[False] * 6]
    assert port.queue.counters.trimmed == 0
