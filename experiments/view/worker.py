"""The process behind a view: it sends a run's events to the web server and carries out requests.

When the page answers, it prints the address of the page as one line.  It belongs to the run, and
ends with it.  An error is one line, in place of the address or on standard error; its traceback
goes to the run's log view.err.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import secrets
import socket
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from weft.experiments.view import page_data, web_server
from weft.testbed.network.network import RunningNetwork
from weft.testbed.observe.event_stream import EventStream
from weft.testbed.observe.viewer_requests import Actions
from weft.testbed.runs import private_files, run_process
from weft.testbed.runs.run import DIRECTORY

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".txt": "text/plain"}
ALONE, ATTACHED = "alone", "attached"  # whether it outlives the process that starts it
LOOPBACK = "127.0.0.1"
ERROR = "error: "  # begins what it prints in place of the address
FAILURE = "failure"  # key of the web server's last line, whose value is the traceback
TOKEN_BYTES = 24


class ServerPipe:
    """The pipe to the web server, written by two threads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, events: Iterable[dict[str, Any]]) -> None:
        """Write a line for each event.

        Raises:
            BrokenPipeError: the web server has ended.
        """
        data = b"".join(page_data.as_json(event) + b"\n" for event in events)
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]


def content(network: RunningNetwork, results: Path) -> web_server.Content:
    """Return everything that the web server serves."""
    files = {
        f"/{path.name}": (f"{TYPES[path.suffix]}; charset=utf-8", path.read_bytes())
        for path in STATIC.iterdir()
        if path.suffix in TYPES
    }
    files["/"] = files.pop("/index.html")
    report = results / "report.html"
    return web_server.Content(
        secrets.token_urlsafe(TOKEN_BYTES),
        files,
        page_data.as_json(page_data.data(network)),
        report.read_bytes() if report.is_file() else None,
    )


def carry_out(run: str, requests: int, channel: ServerPipe, results: Path) -> None:
    """Answer the web server's requests; if it reports its failure, end this process.

    Runs in a thread, because finding a path takes a while.
    """
    actions = Actions(RunningNetwork.open(run))
    with open(requests, "rb") as lines:
        for line in lines:
            message = json.loads(line)
            if FAILURE in message:
                os._exit(report(run, message[FAILURE]))
            request = message["request"]
            answer = (
                page_data.results(results)
                if request.get("do") == "results"
                else actions.do(request)
            )
            channel.send([{"event": "answer", "id": message["id"], "answer": answer}])


def serve_in_child(page: web_server.Content, listener: socket.socket) -> tuple[int, int, int]:
    """Start the web server.

    If it fails, the last line of its requests has the traceback, because it may write no file.

    Returns:
        Its process id, the pipe for events, the pipe of requests.
    """
    events_out, events_in = os.pipe()
    requests_out, requests_in = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(events_in)
            os.close(requests_out)
            sys.stdout.close()
            asyncio.run(web_server.serve(page, listener, events_out, requests_in))
            status = 0
        except Exception:
            os.write(requests_in, json.dumps({FAILURE: traceback.format_exc()}).encode() + b"\n")
        finally:
            os._exit(status)
    os.close(events_out)
    os.close(requests_in)
    return pid, events_in, requests_out


def require_page(port: int) -> None:
    """Return when the page at `port` answers.

    Raises:
        OSError: its server has ended.
    """
    connection = http.client.HTTPConnection(LOOPBACK, port)
    try:
        connection.request("GET", "/")
        connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise OSError(f"the page does not answer: {error}") from None
    finally:
        connection.close()


def report(run: str, trace: str) -> int:
    """Append `trace` to the log of `run`, print its last line, and return the exit status."""
    path = DIRECTORY / run / "log" / "view.err"
    with (
        suppress(OSError),
        open(private_files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "w") as log,
    ):
        log.write(trace)
    return print_error(f"{trace.splitlines()[-1]} (all of it in {path})")


def print_error(error: str) -> int:
    """Print `error` in place of the address, or after it on stderr; return the exit status."""
    if sys.stdout.closed:
        print(f"weft: the view has failed: {error}", file=sys.stderr, flush=True)
    else:
        print(f"{ERROR}{error}", flush=True)
    return 1


def listen(port: int) -> socket.socket:
    """Return a listening socket on loopback; port 0: any free port.

    Raises:
        OSError: the port is in use.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError as error:
        raise OSError(f"port {port} of {LOOPBACK}: {os.strerror(error.errno or 0)}") from None
    listener.listen()
    listener.setblocking(False)
    return listener


def view(run: str, port: int, updates_per_s: float, pairs: int, results: Path) -> None:
    """Print the address of the page, and serve it until the run ends.

    Raises:
        BrokenPipeError: the web server has died.
    """
    network = RunningNetwork.open(run)
    with listen(port) as listener:
        page = content(network, results)
        server, events, requests = serve_in_child(page, listener)
        port = listener.getsockname()[1]
    channel = ServerPipe(events)
    threading.excepthook = lambda failure: os._exit(
        report(run, "".join(traceback.format_exception(failure.exc_value)))
    )
    answering = threading.Thread(
        target=carry_out, args=(run, requests, channel, results), daemon=True
    )
    answering.start()
    stream = EventStream(network, updates_per_s=updates_per_s, pairs=pairs)
    try:
        require_page(port)
    except OSError:
        answering.join()  # ends the process with the web server's own error, where there is one
        raise
    print(f"http://{LOOPBACK}:{port}/#token={page.token}", flush=True)
    sys.stdout.close()
    try:
        for batch in stream.run():
            channel.send(batch)
    except BrokenPipeError:
        answering.join()  # as above
        raise
    os.close(events)
    os.waitpid(server, 0)  # it ends when the pages have all events


def main(argv: Sequence[str]) -> int:
    """Serve the page of one run; return the exit status.

    Args:
        argv: run, port, updates a second, pairs, folder of results, ALONE or ATTACHED.
    """
    run, port, updates_per_s, pairs, results, lifetime = argv
    if lifetime != ALONE:
        run_process.end_with_parent()
    try:
        view(run, int(port), float(updates_per_s), int(pairs), Path(results))
    except BrokenPipeError:
        return 1
    except (OSError, ValueError) as error:
        return print_error(str(error))
    except Exception:
        return report(run, traceback.format_exc())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
