"""Sockets that are waited for, and the time."""

import select
import socket
from contextlib import closing

from weft.testbed.linux import clock
from weft.testbed.traffic.event_loop import EventLoop


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
