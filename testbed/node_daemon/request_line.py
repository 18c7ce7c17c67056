"""Requests at a stream socket: a line of JSON, words, from whoever connects, and a line of JSON in
answer.

Whatever is said there, the process that listens goes on, and none of it keeps it for more than a
second.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from weft.testbed.linux import clock

REQUEST_S, REQUEST_BYTES, SHOWN_BYTES = 1.0, 4096, 80
CommandHandlers = Mapping[str, Callable[..., dict[str, Any]]]


def answer(server: socket.socket, commands: CommandHandlers) -> None:
    """Let the next one that connects have one of `commands` carried out; {"error": text} if that
    cannot be done."""
    connection, _ = server.accept()
    with connection, suppress(OSError):  # who asked has gone, or does not say what it wants
        told = _do(read_line(connection), commands)
        connection.sendall(json.dumps(told).encode() + b"\n")


def _do(line: bytes, commands: CommandHandlers) -> dict[str, Any]:
    try:
        words = json.loads(line)
        if not words or not all(isinstance(word, str) for word in words):
            raise TypeError
        return commands[words[0]](*words[1:])
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        said = ascii(line[:SHOWN_BYTES].decode(errors="replace").strip())
        return {
            "error": f'{said} is no request; write ["start", NODE], or stop, kill, restart or list'
        }
    except (ValueError, OSError) as error:
        return {"error": str(error)}


def read_line(connection: socket.socket) -> bytes:
    """What was sent up to the end of a line, or of REQUEST_BYTES; TimeoutError if it has not come
    within a second."""
    end, line = clock.monotonic() + REQUEST_S, b""
    while b"\n" not in line and len(line) < REQUEST_BYTES:
        connection.settimeout(max(1e-3, end - clock.monotonic()))
        if not (more := connection.recv(REQUEST_BYTES - len(line))):
            break
        line += more
        if clock.monotonic() > end:
            raise TimeoutError("a request that does not end")
    connection.settimeout(REQUEST_S)
    return line
