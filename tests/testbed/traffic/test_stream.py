import time
from array import array

import pytest

from weft.testbed.linux.clock import wait_until
from weft.testbed.traffic.tcp import Arrivals, Stream

SOME = Arrivals(array("d", [1.0, 1.1, 1.5, 1.9, 2.5]), array("q", [10, 20, 30, 40, 50]))


def test_goodput_counts_what_arrived_in_the_time():
    assert SOME.goodput_bps(1.0, 2.0) == 8 * (10 + 20 + 30 + 40)
    assert SOME.goodput_bps(1.2, 1.6) == pytest.approx(8 * 30 / 0.4)
    assert SOME.goodput_bps(3.0, 4.0) == 0


def test_a_stall_may_last_from_the_beginning_or_until_the_end():
    assert SOME.stall_s(1.0, 2.0) == pytest.approx(0.4)
    assert SOME.stall_s(0.0, 2.0) == pytest.approx(1.0)
    assert SOME.stall_s(1.0, 4.0) == pytest.approx(1.5)
    assert SOME.stall_s(3.0, 4.0) == 1.0


@pytest.mark.kernel
def test_a_stream_stalls_as_long_as_its_link_is_dead_and_goes_on(network):
    net = network("dcell:n=3,k=1")
    with Stream(net, 0, 3) as stream:
        wait_until("it flows", lambda: len(stream.arrivals.times_s) > 20)
        net.fail("h0-h3", silent=True)
        failed_s = time.monotonic()
        time.sleep(0.4)  # how long the failure lasts
        seen = len(stream.arrivals.times_s)
        mended_s = time.monotonic()
        net.restore("h0-h3")
        wait_until("it flows again", lambda: len(stream.arrivals.times_s) > seen + 20)
    arrivals = stream.arrivals
    assert arrivals.error is None
    until_s = arrivals.times_s[-1]
    assert arrivals.stall_s(failed_s, until_s) >= mended_s - failed_s - 0.1
    assert arrivals.goodput_bps(mended_s, until_s) > 0
    assert sorted(arrivals.times_s) == list(arrivals.times_s)


@pytest.mark.kernel
def test_what_cannot_be_connected_says_who(network):
    net = network("dcell:n=3,k=1", scheme="none")
    with pytest.raises(OSError, match=r"TCP h0 -> h3: .*unreachable"):
        Stream(net, 0, 3).start()
