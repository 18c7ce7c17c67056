"""The page of a simulation, under node and in Chromium, beside CPython."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import pickle
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.experiments.view import browser
from weft.daemons.simulator.viewer_session import ALL, ViewerSession
from weft.experiments.view import simulation_page
from weft.testbed.uml import virtual_kernel
from weft.topologies import build

NODE = shutil.which("node")
RUNS = (
    ("dcell:n=4,k=1", "dr", "h0-h4", "h12"),
    ("dcell:n=4,k=1", "pr-gpi", "h0-h4", "h12"),
    ("dcell:n=4,k=1", "dfr", "h0-h4", "h12"),
    ("ficonn:n=4,k=1", "tar", "h0-h4", "h5"),
    ("fattree:k=4", "lbsp", "e1.0-a1.0", "a0.0"),
    ("fattree:k=4", "ecmp", "e1.0-a1.0", "a0.0"),
    ("clos:n=4,r=4,m=4", "dar", "e1-c0", "c2"),
)


def steps(link: str, node: str) -> list[tuple[int, dict[str, Any] | None]]:
    """A run with failures: the requests, and the times in µs at which events are fetched."""
    requests: dict[int, dict[str, Any]] = {
        1_200_000: {"do": "fail", "what": link, "silent": True},
        1_500_000: {"do": "power", "node": node},
        1_900_000: {"do": "restart", "node": node},
        2_100_000: {"do": "restore", "what": link},
        2_400_000: {"do": "impair", "link": link, "loss": "10", "delay": "1ms"},
    }
    return [(us, requests.get(us)) for us in range(10_000, 3_000_000, 10_000)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulation")
    try:
        simulation_page.write(folder)
    except OSError as error:
        pytest.skip(f"no Pyodide, so no page of a simulation: {error}")
    return folder


def networks(site: Path) -> dict[str, dict[str, Any]]:
    families = json.loads((site / "networks.json").read_text())
    return {network["spec"]: network for family in families for network in family["networks"]}


def digest(topology: Any, scheme: str, link: str, node: str) -> str:
    session = ViewerSession(topology, scheme, Random(7))
    content = hashlib.sha256()
    for us, request in steps(link, node):
        content.update(session.run(us, ALL).encode())
        if request:
            content.update(session.do(json.dumps(request)).encode())
    return content.hexdigest()


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="no node: the page's Python is not compared with CPython")
def test_every_event_is_that_of_cpython(site: Path) -> None:
    files = networks(site)
    requests = [
        {"file": files[spec]["file"], "scheme": scheme, "seed": 7, "packets": ALL}
        | {"steps": steps(link, node)}
        for spec, scheme, link, node in RUNS
    ]
    assert NODE
    program = Path(__file__).with_name("run_session.mjs")
    printed = subprocess.run(
        [NODE, str(program), str(site)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    expected = [digest(build(spec), scheme, link, node) for spec, scheme, link, node in RUNS]
    assert printed == expected


@pytest.mark.slow
def test_networks_have_files_and_schemes_and_the_page_is_small(site: Path) -> None:
    for network in networks(site).values():
        content = json.loads((site / network["file"]).read_text())
        topology = pickle.loads(base64.b64decode(content["topology"]))
        assert topology.spec == network["spec"]
        assert len(content["drawing"]["nodes"]) == network["nodes"] <= 300
        assert network["schemes"]
    own = [path for path in site.rglob("*") if path.is_file() and "pyodide" not in path.parts]
    assert sum(path.stat().st_size for path in own) < 5e6


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


CONVERGED = "document.querySelector('#health')?.textContent == 'converged'"
SVG = "{http://www.w3.org/2000/svg}"
KEEP_SAVED = """
const address = URL.createObjectURL;
URL.createObjectURL = blob => {
  blob.text().then(text => { window.saved = text; });
  return address.call(URL, blob);
};
"""
FAIL = "[...document.querySelectorAll('#panel button')].find(b => b.textContent == 'fail silently')"


@pytest.mark.slow
@pytest.mark.skipif(
    browser.program() is None, reason="no Chromium: the page of a simulation is not opened"
)
def test_a_browser_simulates_a_failure_and_its_address_repeats_it(address: str) -> None:
    with browser.browser() as page:
        page.open(f"{address}#net=dcell:n=4,k=1&scheme=dr&seed=3&pace=1")
        page.wait(CONVERGED)
        field = "document.querySelector('#find')"
        page.evaluate(f"{field}.value = 'h0-h4'; {field}.dispatchEvent(new Event('change'))")
        page.wait(f"Boolean({FAIL})")
        page.evaluate(f"{FAIL}.click()")
        incident = "document.querySelector('#incident').textContent"
        page.wait(f"{incident}.includes('32 pairs lost, 32 still')")
        page.wait(f"/by 2 daemons; routes of 2 nodes/.test({incident})")
        page.wait("location.hash.includes('~fail~h0-h4~silent=true')")
        page.evaluate(KEEP_SAVED)
        page.evaluate("document.querySelector('#film').click()")
        film = ElementTree.fromstring(page.wait("window.saved"))
        changed = {shape.get("attributeName") for shape in film.iter(f"{SVG}animate")}
        assert {"stroke", "stroke-dasharray", "opacity"} <= changed
        assert len(list(film.iter(f"{SVG}animateMotion"))) > 10
        words, repeated = page.evaluate(incident), page.evaluate("location.href")
        page.open("about:blank")
        page.open(repeated, width=390, height=800, scheme="dark")
        page.wait(f"document.querySelector('#incident')?.textContent == {json.dumps(words)}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.open("about:blank")
        page.open(f"{address}#scheme=dr&pace=1&do=300000~stop~h9")
        page.wait("document.querySelector('#timeline title')?.textContent.length")
        page.wait(
            "[...document.querySelectorAll('#timeline title')]"
            ".some(title => title.textContent == '0.300000 s h9: daemon dead')"
        )
        page.evaluate("document.querySelector('#network').focus()")
        for key in ("ArrowRight", "ArrowDown"):
            page.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        page.wait("document.querySelectorAll('.node.chosen').length == 1")
        assert page.errors == []


@pytest.mark.slow
@pytest.mark.skipif(
    browser.program() is None, reason="no Chromium: the page of a simulation is not opened"
)
def test_a_wrong_address_is_answered_by_one_line(address: str) -> None:
    notice = "document.querySelector('#notice')?.textContent"
    with browser.browser() as page:
        for choice, words in (
            ("net=dcell:n=5,k=9", "there is no network dcell:n=5,k=9 here"),
            ("net=fattree:k=4&scheme=fatpaths", "fattree:k=4 has no scheme fatpaths here"),
            ("do=12~explode~h0", "12~explode~h0 is no action"),
            ("do=0~fail~h0-h19", "no link joins h0 and h19"),
        ):
            page.open("about:blank")
            page.open(f"{address}#{choice}")
            page.wait(f"{notice}?.includes({json.dumps(words)})")
            assert choice in page.evaluate("location.hash")
        page.open("about:blank")
        page.open(f"{address}#scheme=dr:hello_ms=0")
        page.wait(
            "document.querySelector('#loading')?.textContent.startsWith('ValueError: scheme dr')"
        )
        page.open("about:blank")
        page.open(f"{address}#scheme=dr:hello_ms=50&pace=1")
        page.wait(CONVERGED)
        assert page.errors == []


def test_a_registry_without_an_answer_is_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\nsleep 60\n")
    npm.chmod(0o755)
    monkeypatch.setattr(virtual_kernel, "folders", lambda: [tmp_path])
    monkeypatch.setattr(shutil, "which", lambda name: str(npm))
    monkeypatch.setattr(simulation_page, "NPM_S", 0.1)
    with pytest.raises(OSError, match=r"npm pack .*: no answer within 0.1 s"):
        simulation_page.pyodide()


def test_without_pyodide_and_npm_the_pages_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / simulation_page.PYODIDE).write_bytes(b"another archive")
    monkeypatch.setattr(virtual_kernel, "folders", lambda: [tmp_path])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(OSError, match="there is no npm to fetch it") as raised:
        simulation_page.write(tmp_path / "simulation")
    simulation_page.write_absent(tmp_path / "simulation", str(raised.value))
    assert "there is no npm" in (tmp_path / "simulation/index.html").read_text()
