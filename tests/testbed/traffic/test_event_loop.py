"""Sockets that an event loop waits for, the time, and threads that read."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest

from weft.testbed.linux import clock
from weft.testbed.traffic.event_loop import EventLoop, WaitingReaders
from weft.testbed.traffic.flow_results import received_bytes


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


MOST = 8


@pytest.fixture
def events() -> Iterator[EventLoop]:
    events = EventLoop()
    yield events
    events.close()


@pytest.fixture
def readers(events: EventLoop) -> Iterator[WaitingReaders]:
    readers = WaitingReaders(events, MOST)
    yield readers
    readers.close()


@pytest.fixture
def connection() -> Iterator[Callable[[], tuple[socket.socket, socket.socket]]]:
    """Makes the two ends of a connection, sender and receiver."""
    ends: list[socket.socket] = []

    def make() -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sender = socket.create_connection(listener.getsockname())
            receiver, _ = listener.accept()
        ends.extend((sender, receiver))
        return sender, receiver

    yield make
    for end in ends:
        end.close()


def until(events: EventLoop, answer: Callable[[], object]) -> None:
    """Turn the loop until `answer()` is true."""
    events.set_timer(clock.monotonic() + 20)
    while not answer():
        assert not events.turn(), "nothing came within 20 s"


def test_a_flow_has_arrived_with_its_last_byte_and_ends_when_it_is_closed(
    events, readers, connection
):
    sender, receiver = connection()
    told: list[tuple[str, object]] = []
    begin_s = clock.monotonic()
    readers.read(
        receiver,
        500_000,
        lambda at: told.append(("arrived", at)),
        lambda error: told.append(("end", error)),
    )
    sender.sendall(bytes(499_999))
    clock.wait_until("bytes", lambda: received_bytes(receiver) == 499_999)
    assert told == []
    sender.sendall(b"\0")
    until(events, lambda: told)
    ((what, at_s),) = told
    assert what == "arrived"
    assert begin_s < at_s <= clock.monotonic()
    sender.close()
    until(events, lambda: len(told) == 2)
    assert told[1] == ("end", None)


def test_what_has_no_end_is_counted_by_the_kernel_until_it_is_stopped(events, readers, connection):
    sender, receiver = connection()
    ended: list[str | None] = []
    readers.read(receiver, None, lambda at: pytest.fail("arrived"), ended.append)
    sender.sendall(bytes(100_000))
    clock.wait_until("bytes", lambda: received_bytes(receiver) == 100_000)
    assert ended == []
    readers.stop(receiver)
    until(events, lambda: ended)
    assert ended == [None]
    sender.setblocking(False)
    with pytest.raises(BlockingIOError):  # nothing was sent for the stop, not even an end
        sender.recv(1)


def test_an_error_that_ends_a_flow_is_told(events, readers, connection):
    sender, receiver = connection()
    ended: list[str | None] = []
    readers.read(receiver, 10, lambda at: pytest.fail("arrived"), ended.append)
    sender.send(bytes(9))
    clock.wait_until("bytes", lambda: received_bytes(receiver) == 9)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
    sender.close()  # resets it
    until(events, lambda: ended)
    assert ended == [os.strerror(errno.ECONNRESET)]
    readers.stop(receiver)  # once more is nothing


def test_many_are_read_at_once_and_more_one_after_another(events, readers, connection):
    sizes = {number: 1 + 7919 * number for number in range(3 * MOST)}
    arrived: list[int] = []
    ended: list[int] = []
    threads = threading.active_count()
    for first in range(0, len(sizes), MOST):
        senders = []
        for number in range(first, first + MOST):
            sender, receiver = connection()
            readers.read(
                receiver, sizes[number], partial(lambda n, at: arrived.append(n), number),
                partial(lambda n, error: ended.append(n), number),
            )  # fmt: skip
            senders.append((number, sender))
        for number, sender in reversed(senders):
            sender.sendall(bytes(sizes[number]))
            sender.close()
        until(events, lambda first=first: len(ended) == first + MOST)
    assert sorted(arrived) == sorted(ended) == sorted(sizes)
    assert threading.active_count() == threads


def test_there_are_as_many_threads_as_are_needed(events, connection):
    readers, arrived = WaitingReaders(events, 1), []
    pairs = [connection() for _ in range(3)]
    for number, (_, receiver) in enumerate(pairs):
        readers.read(
            receiver, 1, partial(lambda n, at: arrived.append(n), number), lambda error: None
        )
    for number in (2, 1, 0):
        pairs[number][0].send(b"\0")
        until(events, lambda number=number: number in arrived)
    assert arrived == [2, 1, 0]
    for _, receiver in pairs:
        readers.stop(receiver)
    readers.close()


def test_threads_that_nobody_listens_to_any_more_end(events, connection):
    """More of them than a socket or a pipe has room for messages."""
    readers = WaitingReaders(events, 1)
    for _ in range(500):
        sender, receiver = connection()
        readers.read(receiver, 1, lambda at: None, lambda error: None)
        sender.send(b"\0")
        sender.close()
    readers.close()


def test_no_descriptor_is_left_open(events, connection):
    sender, receiver = connection()
    before = len(os.listdir("/proc/self/fd"))
    readers, ended = WaitingReaders(events, 1), []
    readers.read(receiver, None, lambda at: None, ended.append)
    readers.stop(receiver)
    until(events, lambda: ended)
    readers.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert ended == [None]
    assert sender.fileno() >= 0
