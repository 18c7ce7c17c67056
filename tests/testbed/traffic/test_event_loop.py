"""Sockets that are waited for, and the time."""

import select
import socket
from contextlib import closing

import pytest

from weft.testbed.linux import clock
from weft.testbed.traffic.event_loop import EventLoop, Timer


@pytest.fixture
def timer():
    with closing(Timer()) as made:
        yield made


def ready(timer, wait_s=0.0):
    return bool(select.select([timer], [], [], wait_s)[0])


def test_it_is_readable_from_its_time_on(timer):
    at_s = clock.monotonic() + 0.002
    timer.set(at_s)
    assert ready(timer, 60)
    assert clock.monotonic() >= at_s
    assert ready(timer)


def test_the_time_that_was_set_last_counts(timer):
    assert not ready(timer)
    timer.set(clock.monotonic())
    assert ready(timer, 60)
    timer.set(clock.monotonic() + 3600)
    assert not ready(timer)


def test_what_is_past_is_readable_at_once(timer):
    timer.set(0.0)
    assert ready(timer)


def test_what_the_kernel_refuses_is_raised(timer):
    timer.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        timer.set(1.0)
    timer.__init__()


def test_a_turn_handles_what_is_ready_and_tells_whether_it_is_time():
    with closing(EventLoop()) as loop:
        here, there = socket.socketpair()
        seen = []
        loop.watch(there, select.EPOLLIN, seen.append)
        loop.set_timer(clock.monotonic() + 3600)
        here.send(b"x")
        assert not loop.turn()
        assert seen == [select.EPOLLIN]
        loop.change(there, select.EPOLLOUT)
        assert not loop.turn()
        assert seen[1:] == [select.EPOLLOUT]
        loop.drop(there)
        loop.drop(there)
        loop.drop(None)
        assert there.fileno() < 0
        loop.set_timer(0.0)
        assert loop.turn()
        assert len(seen) == 2
        here.close()
