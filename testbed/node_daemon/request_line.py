"""Requests at a stream socket: one line of JSON, a list of words, and one line in answer.

A malformed request stops the process no longer than REQUEST_S, and never ends it.
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
    """Accept one connection, run its command, and answer; {"error": text} if it fails."""
    connection, _ = server.accept()
    with connection, suppress(OSError):  # the client has gone, or sends nothing
        content = _do(read_line(connection), commands)
        connection.sendall(json.dumps(content).encode() + b"\n")


def _do(line: bytes, commands: CommandHandlers) -> dict[str, Any]:
    try:
        words = json.loads(line)
        if not words or not all(isinstance(word, str) for word in words):
            raise TypeError
        return commands[words[0]](*words[1:])
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        text = ascii(line[:SHOWN_BYTES].decode(errors="replace").strip())
        return {"error": f'{text} is no request; write ["start", NODE], or stop, kill or restart'}
    except (ValueError, OSError) as error:
        return {"error": str(error)}


def read_line(connection: socket.socket) -> bytes:
    """Return a line, or its first REQUEST_BYTES.

    Raises:
        TimeoutError: the line did not end in REQUEST_S.
    """
    end_s = clock.monotonic() + REQUEST_S
    line = b""
    while b"\n" not in line and len(line) < REQUEST_BYTES:
        connection.settimeout(max(1e-3, end_s - clock.monotonic()))
        if not (more := connection.recv(REQUEST_BYTES - len(line))):
            break
        line += more
        if clock.monotonic() > end_s:
            raise TimeoutError("a request that does not end")
    connection.settimeout(REQUEST_S)
    return line
