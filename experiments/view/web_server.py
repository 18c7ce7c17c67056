"""The part of the view that others can reach: it serves the page on loopback, and passes events and
requests on.

It runs as nobody, without capabilities, and can neither start a process nor make a file larger.
All that it has is what was read before it gave its rights up, a pipe that events come from, and one
for requests, each of which the other side checks (testbed/observe/viewer_requests.py).

The files of the page are weft's own and need no token.  All that tells of the run needs one, as
`Authorization: Bearer`, or, for the report, as a field of a form.  There is no cookie: browsers
send
cookies to every port of 127.0.0.1.  The page has the token from the fragment of its address, which
browsers do not send.  The host of a request must be loopback, so that no foreign name leads here;
and
a request to do something must come from the page itself, by its Origin, or from no page at all.
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

from weft.testbed.linux import clock
from weft.testbed.observe.stream_event import StreamEvent

NOBODY = 65534
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
HOSTS = ("127.0.0.1", "localhost")
MOST_BODY_BYTES = 1 << 16
# batches of events that a page has not read yet, before it is let go, to come again
MOST_BEHIND = 200
HISTORY = 600  # events of the time line, and lines of logs, that a page is told which comes later
# of these events the latest for each name is kept
KEPT_MERGED = {"load": "links", "daemons": "daemons"}
ANSWER_S = 20.0
PIPE_BYTES = 4096  # what a pipe takes at once or not at all
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' "
    "data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class Content:
    """What the server has in memory.

    files: type and bytes of the page's files, by path.  data: of the network, as JSON.
    report: the page of weft report, None if there is none.
    """

    token: str
    files: Mapping[str, tuple[str, bytes]]
    data: bytes
    report: bytes | None = None


@dataclass
class Hub:
    """Between the pipes and the pages: what was told, who listens, who waits for an answer."""

    requests: int
    latest: dict[str, StreamEvent] = field(default_factory=dict)
    links: dict[str, StreamEvent] = field(default_factory=dict)
    history: deque[StreamEvent] = field(default_factory=lambda: deque(maxlen=HISTORY))
    logs: deque[StreamEvent] = field(default_factory=lambda: deque(maxlen=HISTORY))
    pages: set[asyncio.Queue[bytes | None]] = field(default_factory=set)
    waiting: dict[int, asyncio.Future[StreamEvent]] = field(default_factory=dict)
    asked: int = 0

    def take(self, lines: list[bytes]) -> None:
        """Some events, a line each."""
        told = []
        for line in lines:
            event = json.loads(line)
            if event["event"] == "answer":
                if (future := self.waiting.pop(event["id"], None)) and not future.done():
                    future.set_result(event["answer"])
            else:
                told.append(line)
                self.keep(event)
        self.send(b"".join(b"data: %s\n\n" % line for line in told))

    def keep(self, event: StreamEvent) -> None:
        """Remember what a page must be told that comes later."""
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
        """What there is, for a page that has just come."""
        kinds = ("network", "daemons", "load", "scheme")
        told: list[StreamEvent] = [self.latest[kind] for kind in kinds if kind in self.latest]
        told += self.links.values()
        told.append({"event": "now", "at_s": clock.monotonic()})
        told.append({"event": "history", "events": [*self.history, *self.logs]})
        return b"".join(
            b"data: %s\n\n" % json.dumps(event, separators=(",", ":")).encode() for event in told
        )

    def send(self, data: bytes) -> None:
        for page in list(self.pages) if data else ():
            if page.qsize() < MOST_BEHIND:
                page.put_nowait(data)
            else:
                self.pages.discard(page)
                page.put_nowait(None)

    async def ask(self, request: Mapping[str, Any]) -> StreamEvent:
        """The answer to `request` of who can carry it out."""
        self.asked += 1
        future = self.waiting[self.asked] = asyncio.get_running_loop().create_future()
        line = json.dumps({"id": self.asked, "request": request}).encode() + b"\n"
        if len(line) > PIPE_BYTES:
            raise HTTPError(413)
        os.write(self.requests, line)
        return await asyncio.wait_for(future, ANSWER_S)


class OnLoopback(RequestHandler):
    """Answers requests for this machine's loopback by name."""

    def initialize(self, content: Content, hub: Hub) -> None:
        self.content, self.hub = content, hub

    def prepare(self) -> None:
        if self.request.host.rpartition(":")[0] not in HOSTS:
            raise HTTPError(403, reason="This page is on 127.0.0.1 only")

    def require(self, token: str) -> None:
        """Raise HTTPError unless `token` is that of the view."""
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
    """The page and the files that belong to it."""

    def get(self) -> None:
        if self.request.path not in self.content.files:
            raise HTTPError(404)
        kind, data = self.content.files[self.request.path]
        self.set_header("Content-Type", kind)
        self.finish(data)


class ReportHandler(OnLoopback):
    """The page of weft report, for a form: a link sends no header, and an address would keep the
    token.
    """

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
    """Answers requests whose header has the token."""

    def prepare(self) -> None:
        super().prepare()
        self.require(self.request.headers.get("Authorization", "").removeprefix("Bearer "))


class DataHandler(Guarded):
    """What the page draws."""

    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(self.content.data)


class Events(Guarded):
    """The events of the run as they come (text/event-stream)."""

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


class Do(Guarded):
    """Requests to do something, or to look closer."""

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
    """Become the user nobody, in this process and all that it could start, of which there can be
    none.
    """
    parent = os.getppid()
    os.chdir("/")
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # which a change of user forgets
    if os.getppid() != parent:
        os._exit(1)
    for limit in (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(limit, (0, 0))


async def serve(content: Content, listener: socket.socket, events: int, requests: int) -> None:
    """Serve `content` at `listener`, as user nobody, until `events` ends."""
    hub = Hub(requests)
    handlers = {
        "/page.json": DataHandler,
        "/events": Events,
        "/do": Do,
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
    # The set-up imports modules, which user nobody may be unable to read. No request is served
    # before the next await.
    give_up_rights()
    rest = b""
    while data := await stream.read(1 << 20):
        *lines, rest = (rest + data).split(b"\n")
        hub.take(lines)
    for page in list(hub.pages):
        page.put_nowait(None)
    await asyncio.sleep(0)
    server.stop()
