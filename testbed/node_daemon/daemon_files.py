"""A daemon's files in its run's directory: configuration, lock, log, and the socket for requests.

Bring-up writes the configuration of all daemons, and their supervisor reads it.  A daemon holds
<node>.lock while it runs, so that a node has at most one.  <node>.sock takes datagrams such as
`status` and `stop`.  log/<node>.log is for people, log/neighbours.jsonl for viewers.
"""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.daemons.core.actions import NeighbourNote
from weft.daemons.core.node_config import NodeConfig
from weft.testbed.linux import clock
from weft.testbed.linux.interface import NodeInterfaces
from weft.testbed.runs import private_files

DAEMONS_FILE = "daemons.pickle"
NEIGHBOUR_FILE = "neighbours.jsonl"
REPLY_BYTES = 1 << 20
SO_SNDBUFFORCE = 32
PID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Daemons:
    """The configuration of a run's daemons.

    interfaces, configs: of each node that may have a daemon, by node.
    program: id of the data plane's program at their ports, if there is one.
    first_switch: the node that this program counts as 0.
    transit: id of the program that rewrites packets in transit, if there is one.
    """

    interfaces: Mapping[int, NodeInterfaces]
    configs: Mapping[int, NodeConfig]
    program: int | None = None
    first_switch: int = 0
    transit: int | None = None

    def node(self, name: str) -> int:
        """Return the node called `name`.

        Raises:
            ValueError: it cannot have a daemon.
        """
        for node, interfaces in self.interfaces.items():
            if interfaces.name == name:
                return node
        if not self.interfaces:
            raise ValueError(f"no daemon belongs to {name!r}: no node of this run has one")
        raise ValueError(f"no daemon belongs to {name!r}; nodes with one are {self._some()}")

    def _some(self) -> str:
        names = [interfaces.name for interfaces in self.interfaces.values()]
        return ", ".join(names) if len(names) < 6 else f"{names[0]} .. {names[-1]}"

    def write(self, directory: Path) -> None:
        """Write it to the run's directory, for read()."""
        private_files.write(directory / DAEMONS_FILE, pickle.dumps(self, pickle.HIGHEST_PROTOCOL))


def read_daemons(directory: Path) -> Daemons:
    """Return the configuration of the daemons of the run in `directory`.

    Raises:
        ValueError: the run has no daemons.
    """
    try:
        with open(private_files.open_file(directory / DAEMONS_FILE, os.O_RDONLY), "rb") as file:
            daemons: Daemons = pickle.load(file)
    except FileNotFoundError:
        raise ValueError(
            f"run {directory.name} has no daemons: its routes are fixed, or it has none"
        ) from None
    return daemons


class Descriptor:
    """An open file descriptor with the interface of a socket."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def detach(self) -> int:
        """Return the descriptor; the caller closes it."""
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


class Log(Descriptor):
    """The log of one node: wall clock, monotonic clock in seconds, text.

    A full disk stops no daemon: the next line that can be written says how many are missing.
    """

    def __init__(self, directory: Path, name: str) -> None:
        private_files.make_folder(directory / "log")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        super().__init__(private_files.open_file(directory / "log" / f"{name}.log", flags))
        self._missing = 0

    def write(self, text: str) -> None:
        """Append a line, or the lines of a traceback."""
        stamp = clock.local_time(clock.wall())
        missing = (
            f"({self._missing} lines before this one could not be written) "
            if self._missing
            else ""
        )
        try:
            os.write(self._fd, f"{stamp} {clock.monotonic():.6f} {missing}{text}\n".encode())
        except OSError:
            self._missing += 1
        else:
            self._missing = 0


class NeighbourFile(Descriptor):
    """File of a run to which every daemon appends its changes of neighbours, as JSON for viewers.

    A write that fails loses that line: the log reports a full disk.
    """

    def __init__(self, directory: Path, node: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        super().__init__(private_files.open_file(directory / "log" / NEIGHBOUR_FILE, flags))
        self._node = node

    def write(self, note: NeighbourNote) -> None:
        """Append `note` as one line with the keys of a `neighbour` event (docs/watching.md)."""
        change = {
            "at_s": round(clock.monotonic(), 6),
            "node": self._node,
            "port": note.port,
            "neighbour": note.neighbour,
            "state": "up" if note.up else "down",
            "why": note.reason,
        }
        with suppress(OSError):
            os.write(self._fd, (json.dumps(change) + "\n").encode())


class Lock(Descriptor):
    """The lock that the daemon of a node holds."""

    def __init__(self, directory: Path, name: str) -> None:
        """Take the lock.

        Raises:
            ValueError: another process holds it.
        """
        super().__init__(
            private_files.open_file(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT)
        )
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._fd, PID_BYTES, 0).decode().strip()
            os.close(self._fd)
            raise ValueError(
                f"{name} has a daemon already, process {pid}; end it with `weft daemon "
                f"--stop --node {name}`"
            ) from None
        self.sign()

    def sign(self) -> None:
        """Write the id of this process into the file."""
        os.pwrite(self._fd, f"{os.getpid():<{PID_BYTES}}".encode(), 0)


def holder(directory: Path, name: str) -> int | None:
    """Return the process of the daemon of the node called `name`; None if there is none."""
    with suppress(FileNotFoundError):
        fd = private_files.open_file(directory / f"{name}.lock", os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.pread(fd, PID_BYTES, 0))
        finally:
            os.close(fd)
    return None


def wait_until_ended(directory: Path, name: str, timeout_s: float = 5.0) -> None:
    """Return when the node called `name` has no daemon.

    Raises:
        TimeoutError: its process has not ended in time.
    """
    end_s = clock.monotonic() + timeout_s
    while pid := holder(directory, name):
        if clock.monotonic() > end_s:
            raise TimeoutError(
                f"the daemon of {name}, process {pid}, has not ended after {timeout_s:g} s"
            )
        clock.sleep(0.002)


def bind(unix_socket: socket.socket, path: Path) -> None:
    """Bind a Unix socket to `path`, writable for this user only, whatever the umask is."""
    os.fchmod(unix_socket.fileno(), private_files.FILE_MODE)  # the file inherits the mode
    unix_socket.bind(str(path))


class Requests:
    """The socket at which a daemon takes requests."""

    def __init__(self, directory: Path, name: str) -> None:
        """Open the socket; the caller holds the node's lock, so an old file is of a dead daemon."""
        self._path = directory / f"{name}.sock"
        self._path.unlink(missing_ok=True)
        self.socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        self.socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, REPLY_BYTES)
        bind(self.socket, self._path)

    def fileno(self) -> int:
        return self.socket.fileno()

    def read(self) -> tuple[str, str | None] | None:
        """Return a request and its sender, None for an unnamed socket; None if none waits."""
        with suppress(BlockingIOError):
            request, sender = self.socket.recvfrom(64)
            return request.decode(errors="replace"), sender
        return None

    def answer(self, receiver: str | None, content: dict[str, Any]) -> None:
        if receiver is None:
            return
        with suppress(OSError):  # the receiver has gone, or does not read
            self.socket.sendto(json.dumps(content).encode(), receiver)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        self.socket.close()


def ask(directory: Path, name: str, request: str, timeout_s: float = 2.0) -> dict[str, Any]:
    """Return the answer of the daemon of the node called `name` to `request`.

    Raises:
        ValueError: the node has no daemon, or the daemon refuses the request.
        TimeoutError: the daemon does not answer.
    """
    own = directory / f"{name}.ask.{os.getpid()}.{clock.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
        client.settimeout(timeout_s)
        try:
            bind(client, own)
            client.sendto(request.encode(), str(directory / f"{name}.sock"))
            answer: dict[str, Any] = json.loads(client.recv(REPLY_BYTES))
        except (FileNotFoundError, ConnectionRefusedError):
            raise ValueError(f"{name} has no daemon") from None
        except TimeoutError:
            raise TimeoutError(f"the daemon of {name} does not answer") from None
        finally:
            own.unlink(missing_ok=True)
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer
