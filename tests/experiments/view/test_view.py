"""The view of a run, as a browser or somebody else may use it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.view import browser
from tests.experiments.view.test_metrics import parse
from weft.experiments.view.page_data import CONTENT_TYPE
from weft.experiments.view.web_server import UNPRIVILEGED
from weft.testbed.linux.clock import wait_until
from weft.testbed.network.network import RunningNetwork
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

ROOT = Path(__file__).parents[3]
WEFT = [sys.executable, "-m", "weft.experiments.cli.cli"]
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
JSON = {"Content-Type": "application/json"}
Answer = tuple[int, dict[str, str], bytes]


class View:
    """`weft view` of a network."""

    def __init__(self, network: RunningNetwork, folder: Path, weft: Sequence[str] = WEFT) -> None:
        self.network = network
        command = [*weft, "view", "--run", network.run.id, "--results", str(folder)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), (
            self.process.stderr and self.process.stderr.read()
        )
        host, _, token = self.address.removeprefix("http://").partition("/#token=")
        self.host, self.token = host, token
        self.origin = f"http://{host}"
        self.bearer = {"Authorization": f"Bearer {token}"}

    def ask(
        self, path: str, headers: dict[str, str], body: Any = None, host: str | None = None
    ) -> Answer:
        """Status, headers and content of what the server answers; `body` is posted."""
        connection = http.client.HTTPConnection(self.host, timeout=20)
        data = (
            None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        connection.putrequest("GET" if data is None else "POST", path, skip_host=True)
        for name, value in (
            {"Host": host or self.host}
            | headers
            | ({"Content-Length": str(len(data))} if data else {})
        ).items():
            connection.putheader(name, value)
        connection.endheaders(data)
        answer = connection.getresponse()
        reply = answer.status, dict(answer.getheaders()), answer.read()
        connection.close()
        return reply

    def do(self, **request: Any) -> dict[str, Any]:
        """The answer to a request as the page makes it."""
        status, _, body = self.ask("/do", self.bearer | JSON | {"Origin": self.origin}, request)
        assert status == 200, body
        answer: dict[str, Any] = json.loads(body)
        return answer

    def end(self) -> int:
        """Wait until it has ended; its exit status."""
        status = self.process.wait(20)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream
            stream.close()
        return status

    def processes(self) -> list[int]:
        """Those that serve it, the web server last."""
        (worker,) = children(self.process.pid)
        return [worker, *children(worker)]


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def open_view(spec: str, folder: Path) -> Iterator[View]:
    """A network that is up, and its view."""
    network = RunningNetwork.create(
        build(spec), LINK, scheme="dr" if spec.startswith("dcell") else "ecmp"
    )
    try:
        shown = View(network, folder)
        try:
            yield shown
        finally:
            network.down()
            shown.end()
    finally:
        if network.run.directory.exists():
            network.down()


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    """One for all tests; each mends what it breaks."""
    with open_view("dcell:n=3,k=1", tmp_path_factory.mktemp("results")) as shown:
        yield shown


FILES = (
    "/",
    "/view.js",
    "/session.js",
    "/drawing.js",
    "/view.css",
    "/d3.min.js",
    "/d3.LICENSE.txt",
)


@pytest.mark.kernel
def test_what_tells_of_the_run_needs_the_token_and_all_of_it_loopback(view: View) -> None:
    wrong: tuple[dict[str, str], ...] = (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
    )
    for path in ("/page.json", "/events", f"/page.json?token={view.token}"):
        for headers in wrong:
            assert view.ask(path, headers)[0] == 403, (path, headers)
    assert view.ask("/page.json", view.bearer)[0] == 200
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for body, status in ((b"", 403), (b"token=wrong", 403), (f"token={view.token}".encode(), 404)):
        assert view.ask("/report", form, body)[0] == status, body
    for path in ("/", "/page.json"):
        assert view.ask(path, view.bearer, host="weft.example:80")[0] == 403, (
            "a name that somebody points here"
        )
    for path in FILES:
        assert view.ask(path, {})[0] == 200, path
    for path in ("/nothing", "/../worker.py"):
        assert view.ask(path, view.bearer)[0] == 404, path
    _, headers, body = view.ask("/", {})
    assert b"<svg" in body
    assert "script-src 'self';" in headers["Content-Security-Policy"]
    port = int(view.host.partition(":")[2])
    with socket.socket() as elsewhere, pytest.raises(ConnectionRefusedError):
        elsewhere.connect(("127.0.0.2", port))


@pytest.mark.kernel
def test_no_cookie_is_set_and_one_is_worth_nothing(view: View) -> None:
    """A browser sends the cookies of 127.0.0.1 to each of its ports, whatever program listens
    there."""
    for path in (*FILES, f"/?token={view.token}", "/page.json"):
        assert "Set-Cookie" not in view.ask(path, view.bearer)[1], path
    cookie = {"Cookie": f"weft-{view.host.partition(':')[2]}={view.token}; token={view.token}"}
    body = {"do": "fail", "what": "h0-h3"}
    for path, headers, posted in (
        ("/page.json", {}, None),
        ("/events", {}, None),
        ("/report", {}, b""),
        ("/do", JSON | {"Origin": view.origin}, body),
    ):
        assert view.ask(path, cookie | headers, posted)[0] == 403, path
    assert view.network.failed_links() == []


@pytest.mark.kernel
def test_what_changes_a_network_has_the_token_and_is_of_no_other_page(view: View) -> None:
    body = {"do": "fail", "what": "h0-h3"}
    own = view.bearer | {"Origin": view.origin}
    for headers in (
        {},
        {"Origin": view.origin},
        *(view.bearer | {"Origin": o} for o in ("http://weft.example", "null")),
    ):
        assert view.ask("/do", headers | JSON, body)[0] == 403, headers
    assert view.ask("/do", own, body)[0] == 415
    assert view.ask("/do", own | JSON, b"{")[0] == 400
    assert view.ask("/do", own | JSON, [1])[0] == 400
    assert view.ask("/do", own | JSON, {"do": "x" * 5000})[0] == 413
    assert view.network.failed_links() == []
    assert view.ask("/do", view.bearer | JSON, body)[0] == 200
    assert view.network.failed_links() == [view.network.topology.link("h0-h3")]
    view.do(do="restore", what="h0-h3")


@pytest.mark.kernel
def test_links_and_nodes_break_and_mend_and_a_path_is_what_packets_take(view: View) -> None:
    link = view.network.topology.link
    path = {"nodes": ["h0", "h3", "h4"], "links": ["h0-h3", "h3-w1", "h4-w1"], "reason": None}
    # another test may have just mended a link
    wait_until("packets take the path", lambda: view.do(do="path", src="h0", dst="h4") == path)
    assert view.do(do="fail", what="h0-h3", silent=True) == {}
    assert view.network.failed_links() == [link("h0-h3")]
    wait_until("h0's route", lambda: view.do(do="path", src="h0", dst="h4")["reason"])
    answer = view.do(do="node", node="s0.0")
    assert answer["node"] == "h0"
    assert answer["routes"]["10.0.1.0/24"] == []
    assert answer["links"] == ["h0-w0", "h0-h3"]
    assert {neighbour["node"] for neighbour in answer["neighbours"]} == {"h1", "h2", "h3"}
    assert any("neighbour h3 down" in line for line in answer["log"])
    assert view.do(do="restore", what="h0-h3") == {}
    assert view.do(do="fail", what="h5") == {}
    assert len(view.network.failed_links()) == 2
    assert view.do(do="restore", what="h5") == {}
    assert view.network.failed_links() == []
    assert view.do(do="degrade", link="h0-h3", rate="2mbit") == {}
    assert view.do(do="restore", what="h0-h3") == {}
    assert view.do(do="impair", link="h0-h3", loss="1") == {}
    assert view.do(do="link", link="h0-h3") == {
        "loss_percent": pytest.approx(1, abs=1e-4),
        "delay_us": 0,
    }
    assert view.do(do="restore", what="h0-h3") == {}
    assert view.do(do="link", link="h0-h3")["loss_percent"] == 0
    assert "pid" not in view.do(do="restart", node="h1")
    for request, words in (
        ({"do": "fail", "what": "h0-h9"}, "no link joins"),
        ({"do": "scheme", "scheme": "ttc"}, "ttc"),
        ({"do": "degrade", "link": "h0-h3", "rate": "fast"}, "fast"),
        ({"do": "path", "src": "h0", "dst": "h0"}, "itself"),
        ({"do": "path", "src": "h0", "dst": "w0"}, "crossbar"),
        ({"do": "path", "src": "h0"}, "an argument is missing"),
        ({"do": "fail", "what": ["h0"]}, "unknown request"),
        ({"do": "down"}, "unknown request"),
    ):
        answer = view.do(**request)
        assert words in answer["error"], answer
        assert "\n" not in answer["error"]


@pytest.mark.kernel
def test_metrics_count_what_links_carry_and_need_the_token(view: View) -> None:
    assert view.ask("/metrics", {})[0] == 403

    def metrics() -> dict[tuple[str, str | None], int]:
        status, headers, body = view.ask("/metrics", view.bearer)
        assert (status, headers["Content-Type"]) == (200, CONTENT_TYPE)
        return parse(body.decode())

    def has_routes() -> bool:
        return metrics().get(("weft_daemon_routes", 'node="h0"'), 0) > 0

    wait_until("the daemons are read", has_routes)
    wait_until("the link is up", lambda: metrics()["weft_link_up", 'link="h0-h3"'] == 1)
    there = "weft_link_sent_bytes_total", 'link="h0-h3",from="h0",to="h3"'
    before = metrics()
    wait_until("hellos are counted", lambda: metrics()[there] > before[there])
    view.do(do="fail", what="h0-h3")
    wait_until("failure is seen", lambda: not metrics()["weft_link_up", 'link="h0-h3"'])
    view.do(do="restore", what="h0-h3")
    wait_until("repair is seen", lambda: metrics()["weft_link_up", 'link="h0-h3"'] == 1)


def status_of(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: rest.split() for name, _, rest in (line.partition(":\t") for line in lines)}


def has_ended(pid: int) -> bool:
    try:
        return status_of(pid)["State"][0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.kernel
def test_the_web_server_has_no_rights_and_all_ends_with_ctrl_c_or_the_run(tmp_path: Path) -> None:
    with open_view("star:n=2", tmp_path) as first:
        worker, server = first.processes()
        about = status_of(server)
        assert set(about["Uid"] + about["Gid"]) == {str(UNPRIVILEGED)}
        assert about["Groups"] == []
        assert all(
            int(about[name][0], 16) == 0 for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")
        )
        assert about["NoNewPrivs"] == ["1"]
        limits = Path(f"/proc/{server}/limits").read_text().splitlines()
        for name in ("Max processes", "Max file size"):
            limit = next(line for line in limits if line.startswith(name))
            assert limit.removeprefix(name).split()[:2] == ["0", "0"]
        second = View(first.network, tmp_path)
        also = second.processes()
        second.process.send_signal(signal.SIGINT)
        assert second.end() == 130
        wait_until("both have ended", lambda: all(map(has_ended, also)))
        assert first.network.run.alive()
        first.network.down()
        assert first.process.wait(20) == 0
        wait_until("both have ended", lambda: has_ended(worker) and has_ended(server))


PRIVATE = """
set -e
mkdir -p -m 0700 "$1/root/checkout" "$1/root/environment"
mount --bind "$2" "$1/root/checkout"
mount --bind "$3" "$1/root/environment"
cd "$1/root/checkout"
shift 3
exec ../environment/bin/python -m weft.experiments.cli.cli "$@"
"""


@pytest.mark.kernel
def test_the_page_answers_where_weft_lies_below_a_folder_of_roots_own(
    view: View, tmp_path: Path
) -> None:
    mounted = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", PRIVATE, "sh"]
    private = View(view.network, tmp_path, [*mounted, str(tmp_path), str(ROOT), sys.prefix])
    for path, status in (("/", 200), ("/view.js", 200), ("/nothing", 404), ("/page.json", 200)):
        assert private.ask(path, private.bearer)[0] == status, path
    assert told_at_first(private)
    assert private.do(do="node", node="h0")["node"] == "h0"
    private.process.send_signal(signal.SIGINT)
    assert private.end() == 130


@pytest.mark.kernel
def test_a_web_server_that_fails_is_reported_in_a_line_and_logged(view: View) -> None:
    """The web server of the first view fails before it serves, that of the second while it
    serves."""
    broken = """
import sys, time
from weft.experiments.view import web_server, worker
def fail(*_):
    raise RuntimeError("planted")
setattr(*((web_server, "give_up_rights") if sys.argv[1] == "before" else (web_server.Hub, "take")), fail)
report = worker.report
worker.report = lambda *words: time.sleep(0.5) or report(*words)  # after the pipe has broken
sys.exit(worker.main(sys.argv[2:]))
"""  # noqa: E501
    for when, stream in (("before", "stdout"), ("after", "stderr")):
        argv = [
            sys.executable,
            "-c",
            broken,
            when,
            view.network.run.id,
            "0",
            "10",
            "0",
            "results",
            "alone",
        ]
        ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 1
        line = getattr(ended, stream).splitlines()[-1]
        log = view.network.run.directory / "log" / "view.err"
        assert line.endswith(f"RuntimeError: planted (all of it in {log})")
        assert ("http://" in ended.stdout) == (when == "after")
        assert "Traceback" not in ended.stdout + ended.stderr
        assert log.read_text().count("RuntimeError: planted") == 1
        log.unlink()


@pytest.mark.kernel
def test_events_reach_every_page_and_who_comes_later_is_told_what_happened(view: View) -> None:
    view.do(do="fail", what="h1-h6", silent=True)
    failed = {"event": "link", "link": "h1-h6", "state": "silent"}
    wait_until(
        "the failure",
        lambda: [event for event in told_at_first(view) if failed.items() <= event.items()],
    )
    answer = {event["event"]: event for event in told_at_first(view)}
    assert answer["network"]["run"] == view.network.run.id
    assert len(answer["daemons"]["daemons"]) == 12
    assert len(answer["load"]["links"]) == 18
    assert answer["now"]["at_s"] >= answer["load"]["at_s"]
    assert [event["link"] for event in answer["history"]["events"] if event["event"] == "link"][
        -1
    ] == "h1-h6"
    view.do(do="restore", what="h1-h6")


def told_at_first(view: View) -> list[dict[str, Any]]:
    """Return the events for a page that has just been opened."""
    connection = http.client.HTTPConnection(view.host, timeout=20)
    connection.request("GET", "/events", headers=view.bearer)
    answer, lines = connection.getresponse(), []
    while not lines or lines[-1]["event"] != "history":
        if (line := answer.readline()).startswith(b"data: "):
            lines.append(json.loads(line[6:]))
    connection.close()
    return lines


# How many nodes the hint of each server covers, with the pointer on that server.
NODES_BEHIND_TIP = """
[...document.querySelectorAll('.node.server')].map(node => {
  const at = node.getBoundingClientRect();
  const [x, y] = [(at.left + at.right) / 2, (at.top + at.bottom) / 2];
  node.dispatchEvent(new PointerEvent('pointermove', {clientX: x, clientY: y, bubbles: true}));
  const tip = document.querySelector('#tip').getBoundingClientRect();
  return [...document.querySelectorAll('.node')].map(n => n.getBoundingClientRect()).filter(n =>
    n.right > tip.left && n.left < tip.right && n.bottom > tip.top && n.top < tip.bottom).length;
})
"""


def find(name: str) -> str:
    """Return a script that types a name into the field."""
    field = "document.querySelector('#find')"
    return f"{field}.value = '{name}'; {field}.dispatchEvent(new Event('change'))"


@pytest.mark.kernel
@pytest.mark.skipif(
    browser.program() is None, reason="no Chromium on this machine; the rest of the view is tested"
)
def test_a_browser_shows_the_network_breaks_a_link_and_shows_what_comes_of_it(
    view: View, tmp_path: Path
) -> None:
    with browser.browser() as page:
        page.open(view.address)
        page.wait(
            "document.querySelectorAll('.node').length == 16 && "
            "document.querySelectorAll('.half').length == 36"
        )
        page.wait("document.querySelector('#health').textContent == 'converged'")
        assert page.evaluate("location.hash + document.cookie") == "", (
            "the token stays in the tab alone"
        )
        page.wait(
            "document.querySelector('#timeline .empty')?.textContent == 'none of 12 sampled pairs'"
        )
        assert page.evaluate(NODES_BEHIND_TIP) == [0] * 12, "a hint covers no node"
        page.evaluate(find("h0"))
        page.wait("document.querySelector('#panel h2')?.textContent == 'server h0'")
        page.evaluate(find("h4"))
        page.wait("document.querySelector('#panel').textContent.includes('h0 → h3 → h4')")
        assert page.evaluate("document.querySelectorAll('.route').length") == 3
        page.evaluate(find("h0-h3"))
        for text, lossy in (("10 %", "true"), ("restore", "false")):
            page.wait("document.querySelector('#panel h2')?.textContent == 'link h0-h3'")
            page.evaluate(
                "[...document.querySelectorAll('#panel button')]"
                f".findLast(b => b.textContent == '{text}').click()"
            )
            page.wait(
                f"document.querySelector('#panel').textContent.includes('loses 10 %') == {lossy}"
            )
            page.screenshot(tmp_path / f"impaired-{text.partition(' ')[0]}.png")
        page.wait("document.querySelector('#panel h2')?.textContent == 'link h0-h3'")
        page.evaluate(
            "[...document.querySelectorAll('#panel button')].find(b => b.textContent == "
            "'fail silently').click()"
        )
        page.wait("document.querySelectorAll('.half.silent').length == 2")
        page.wait(
            "/h0-h3 silent; noticed after .* by \\d+ "
            "daemon/.test(document.querySelector('#incident').textContent)"
        )
        page.wait("document.querySelectorAll('#lines li').length > 3")
        pictures = set()
        for width, height in ((1280, 860), (390, 800)):
            for scheme in ("light", "dark"):
                page.open(view.origin + "/", width=width, height=height, scheme=scheme)
                page.wait("document.querySelectorAll('.half.silent').length == 2")
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
                    "nothing sticks out sideways"
                )
                pictures.add(page.screenshot(tmp_path / f"{width}-{scheme}.png"))
        assert len(pictures) == 4
        assert page.errors == []
        another = View(view.network, tmp_path)
        page.open(another.address)
        page.wait("document.querySelector('#health')?.textContent.includes('1 link failed')")
        another.process.send_signal(signal.SIGINT)
        another.end()
        page.wait("document.querySelector('#health').textContent == 'no connection'")
        page.wait(
            "document.querySelector('#notice').textContent.startsWith('The run has been "
            "taken down, or')"
        )
    view.do(do="restore", what="h0-h3")


def test_numbers_that_are_none_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from weft.experiments.cli.cli import main

    if os.geteuid() == 0:
        assert main(["view", "--port", "65536"]) == 2
        assert "--port: 0 (any) to 65535" in capsys.readouterr().err
        assert main(["events", "--updates", "0"]) == 2
        assert "updates a second" in capsys.readouterr().err
