"""The web server of a view, on loopback: it serves the page, and relays events and requests.

The process has no privileges: it runs as an unprivileged user without capabilities, and can neither
start a process nor enlarge a file.  It holds files that were read before, a pipe of events, and a
pipe for requests, which the other side checks (testbed/observe/viewer_requests.py).

The page's own files need no token.  Everything about the run does, as `Authorization: Bearer`, or
as a form field for the report.  There are no cookies, because browsers send them to every port of
127.0.0.1.  The page reads the token from its address's fragment, which browsers do not send.  The
host of a request must be loopback, against foreign names that resolve to it.  The origin of an
action must be the page itself, or missing.
"""

from __future__ import annotations

import asyncio
import ctypes
import hmac
import json
import os
import resource
import signal
import socket
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.routing import URLSpec
from tornado.web import Application, HTTPError, RequestHandler

from weft.experiments.view import page_data
from weft.testbed.linux import clock
from weft.testbed.observe.changes import StreamEvent

UNPRIVILEGED = 65534  # user and group without rights
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
HOSTS = ("127.0.0.1", "localhost")
MOST_BODY_BYTES = 1 << 16
# unread batches of events after which a page is disconnected; it connects again
MOST_BEHIND = 200
HISTORY = 600  # events of the time line, and lines of logs, for pages that connect later
# events with a dictionary of names, whose latest values are kept
KEPT_MERGED = {"load": "links", "daemons": "daemons"}
ANSWER_S = 20.0
PIPE_BYTES = 4096  # written to a pipe as a whole or not at all
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' "
    "data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class Content:
    """Everything that the server serves, in memory.

    files: type and bytes of the page's files, by path.
    data: drawing and schemes of the network, as JSON.
    report: the page of `weft report`; None if there is none.
    """

    token: str
    files: Mapping[str, tuple[str, bytes]]
    data: bytes
    report: bytes | None = None


@dataclass
class Hub:
    """Relay between the pipes and the pages.

    requests: descriptor of the pipe for requests.
    latest, links, history, logs: events for pages that connect later.
    pages: queue of each connected page; None ends its connection.
    waiting: requests without an answer, by number.
    """

    requests: int
    latest: dict[str, StreamEvent] = field(default_factory=dict)
    links: dict[str, StreamEvent] = field(default_factory=dict)
    history: deque[StreamEvent] = field(default_factory=lambda: deque(maxlen=HISTORY))
    logs: deque[StreamEvent] = field(default_factory=lambda: deque(maxlen=HISTORY))
    pages: set[asyncio.Queue[bytes | None]] = field(default_factory=set)
    waiting: dict[int, asyncio.Future[StreamEvent]] = field(default_factory=dict)
    last_request: int = 0

    def take(self, lines: list[bytes]) -> None:
        """Pass events on, one a line; resolve the requests that they answer."""
        events = []
        for line in lines:
            event = json.loads(line)
            if event["event"] == "answer":
                if (future := self.waiting.pop(event["id"], None)) and not future.done():
                    future.set_result(event["answer"])
            else:
                events.append(line)
                self.keep(event)
        self.send(b"".join(map(_server_sent, events)))

    def keep(self, event: StreamEvent) -> None:
        """Keep an event for pages that connect later."""
        kind = event["event"]
        if inner := KEPT_MERGED.get(kind):
            event = {**event, inner: self.latest.get(kind, {}).get(inner, {}) | event[inner]}
        if kind in ("network", "scheme", *KEPT_MERGED):
            self.latest[kind] = event
        else:
            (self.logs if kind == "log" else self.history).append(event)
        if kind == "link":
            self.links[event["link"]] = event

    def snapshot(self) -> bytes:
        """Return the present state as events, for a page that has just connected."""
        kinds = ("network", "daemons", "load", "scheme")
        events: list[StreamEvent] = [self.latest[kind] for kind in kinds if kind in self.latest]
        events += self.links.values()
        events.append({"event": "now", "at_s": clock.monotonic()})
        events.append({"event": "history", "events": [*self.history, *self.logs]})
        return b"".join(_server_sent(page_data.as_json(event)) for event in events)

    def send(self, data: bytes) -> None:
        """Send `data` to every page; disconnect pages that do not read."""
        for page in list(self.pages) if data else ():
            if page.qsize() < MOST_BEHIND:
                page.put_nowait(data)
            else:
                self.pages.discard(page)
                page.put_nowait(None)

    async def ask(self, request: Mapping[str, Any]) -> StreamEvent:
        """Return the answer to `request`."""
        self.last_request += 1
        number = self.last_request
        line = json.dumps({"id": number, "request": request}).encode() + b"\n"
        if len(line) > PIPE_BYTES:
            raise HTTPError(413)
        future = self.waiting[number] = asyncio.get_running_loop().create_future()
        os.write(self.requests, line)
        return await asyncio.wait_for(future, ANSWER_S)


def _server_sent(data: bytes) -> bytes:
    """Return one event in the format text/event-stream."""
    return b"data: %s\n\n" % data


class OnLoopback(RequestHandler):
    """Handler of requests whose host is loopback."""

    def initialize(self, content: Content, hub: Hub) -> None:
        self.content, self.hub = content, hub

    def prepare(self) -> None:
        if self.request.host.rpartition(":")[0] not in HOSTS:
            raise HTTPError(403, reason="This page is on 127.0.0.1 only")

    def require(self, token: str) -> None:
        """Raise HTTPError unless `token` is the view's."""
        if not hmac.compare_digest(token.encode(), self.content.token.encode()):
            raise HTTPError(
                403, reason="The address that weft view printed has a token; open that one"
            )

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        self.set_header("Content-Security-Policy", PAGE_POLICY)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")

    def write_error(self, status_code: int, **_: Any) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{self._reason}\n")

    def log_exception(self, *_: Any) -> None:
        """Write no access log."""


class File(OnLoopback):
    """The page and its files."""

    def get(self) -> None:
        if self.request.path not in self.content.files:
            raise HTTPError(404)
        kind, data = self.content.files[self.request.path]
        self.set_header("Content-Type", kind)
        self.finish(data)


class ReportHandler(OnLoopback):
    """The page of `weft report`, by a form: links send no header, and addresses are stored."""

    def post(self) -> None:
        self.require(self.get_body_argument("token", ""))
        if self.content.report is None:
            raise HTTPError(
                404, reason="There is no report: weft report writes one from what is stored"
            )
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", REPORT_POLICY)
        self.finish(self.content.report)


class Guarded(OnLoopback):
    """Handler of requests whose header has the token."""

    def prepare(self) -> None:
        super().prepare()
        self.require(self.request.headers.get("Authorization", "").removeprefix("Bearer "))


class DataHandler(Guarded):
    """Drawing and schemes of the network."""

    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(self.content.data)


class Events(Guarded):
    """The events of the run (text/event-stream)."""

    async def get(self) -> None:
        self.set_header("Content-Type", "text/event-stream")
        page: asyncio.Queue[bytes | None] = asyncio.Queue()
        page.put_nowait(self.hub.snapshot())
        self.hub.pages.add(page)
        self.page = page
        try:
            while (data := await page.get()) is not None:
                self.write(data)
                await self.flush()
        except StreamClosedError:
            pass
        finally:
            self.hub.pages.discard(page)

    def on_connection_close(self) -> None:
        self.page.put_nowait(None)


class Metrics(Guarded):
    """The state of the run for Prometheus (page_data.py)."""

    async def get(self) -> None:
        reply = await self.hub.ask({"do": "ports"})
        if "network" not in self.hub.latest or "ports" not in reply:
            raise HTTPError(503, reason="The run has not been read yet")
        self.set_header("Content-Type", page_data.CONTENT_TYPE)
        self.finish(page_data.openmetrics(self.hub.latest, self.hub.links, reply["ports"]))


class Do(Guarded):
    """Actions and queries (testbed/observe/viewer_requests.py)."""

    async def post(self) -> None:
        if self.request.headers.get("Origin") not in (None, f"http://{self.request.host}"):
            raise HTTPError(403, reason="Only the page itself may do that")
        if self.request.headers.get("Content-Type", "").partition(";")[0] != "application/json":
            raise HTTPError(415)
        try:
            request = json.loads(self.request.body)
        except ValueError:
            raise HTTPError(400) from None
        if not isinstance(request, dict):
            raise HTTPError(400)
        self.write(await self.hub.ask(request))


def give_up_rights() -> None:
    """Become an unprivileged user that can start no process and enlarge no file."""
    parent = os.getppid()
    os.chdir("/")
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
        os.setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user resets it
    if os.getppid() != parent:
        os._exit(1)
    for limit in (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(limit, (0, 0))


async def serve(content: Content, listener: socket.socket, events: int, requests: int) -> None:
    """Serve `content` at `listener`, without privileges, until the pipe `events` ends."""
    hub = Hub(requests)
    handlers = {
        "/page.json": DataHandler,
        "/events": Events,
        "/do": Do,
        "/metrics": Metrics,
        "/report": ReportHandler,
        "/.*": File,
    }
    routes = [
        URLSpec(path, handler, {"content": content, "hub": hub})
        for path, handler in handlers.items()
    ]
    server = HTTPServer(Application(list(routes)), max_body_size=MOST_BODY_BYTES)
    stream = asyncio.StreamReader(limit=1 << 24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(events, "rb")
    )
    server.add_socket(listener)
    # The set-up imports modules, which an unprivileged user may be unable to read.  No request is
    # served before the next await.
    give_up_rights()
    rest = b""
    while data := await stream.read(1 << 20):
        *lines, rest = (rest + data).split(b"\n")
        hub.take(lines)
    for page in list(hub.pages):
        page.put_nowait(None)
    await asyncio.sleep(0)
    server.stop()
