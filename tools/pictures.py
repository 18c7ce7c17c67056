"""Draw the pictures of README and of the site's first page from real runs.

    python -m tools.pictures terminal FILE COMMAND...
    python -m tools.pictures page SITE STEM

`terminal` runs a command in a terminal and writes an SVG in which each line with a verdict appears
when it was printed; long waits are cut.  `page` opens the simulation in SITE, which `make docs` has
written, silences a link, and writes STEM_light.png and STEM_dark.png.  It needs Chromium.
"""

from __future__ import annotations

import argparse
import functools
import os
import pty
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from tests.experiments.view import browser
from weft.testbed.linux.clock import wait_until

COLUMNS, ROW_PX, LETTER_PX, MARGIN_PX = 96, 19, 7.8, 14
LONGEST_WAIT_S, SHORTEST_WAIT_S, HOLD_S = 1.5, 0.25, 6.0
VERDICTS = ("PASS", "WARN", "FAIL")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOURS = {"PASS": "#7ee787", "WARN": "#e3b341", "FAIL": "#ff7b72", "$": "#79c0ff"}
FRAME = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img"
  font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13">
<title>{title}</title>
<style>
text {{ fill: #d0d7de; white-space: pre; }}
@media (prefers-reduced-motion: no-preference) {{
{frames}
}}
</style>
<rect width="100%" height="100%" rx="8" fill="#161b22"/>
{rows}
</svg>
"""
FRAMES = """@keyframes k{number} {{ 0% {{ opacity: 0.15; }} {share:.2f}%, 100% {{ opacity: 1; }} }}
.l{number} {{ animation: k{number} {end_s:.2f}s step-end infinite; }}"""
ADDRESS = "simulation/index.html#net=dcell:n=4,k=1&scheme=pr-gpi&seed=1&pace=1"
FAILURE = "&do=1200000~fail~h0-h4~silent=true"
LOADING_S = 300  # Python for browsers, on a busy machine
NOTICED = "document.querySelector('#incident')?.textContent.includes('none after')"


class Printed(NamedTuple):
    """A line of a terminal, and when it was complete, in seconds since the start."""

    at_s: float
    text: str


def recorded(command: Sequence[str]) -> list[Printed]:
    """Return the lines with a verdict that `command` prints in a terminal;
    CalledProcessError if it fails."""
    main, terminal = pty.openpty()
    begin_s = time.monotonic()
    environment = {**os.environ, "COLUMNS": "200", "TERM": "xterm"}
    process = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    lines, rest = [], b""
    for data in chunks(main):
        *whole, rest = (rest + data).split(b"\n")
        now_s = time.monotonic() - begin_s
        lines += [Printed(now_s, shown(line.decode(errors="replace"))) for line in whole]
    os.close(main)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, list(command))
    return [line for line in lines if line.text.startswith(VERDICTS)]


def chunks(descriptor: int) -> Iterator[bytes]:
    """Yield what a terminal prints until its program has ended."""
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # EIO: the other end is closed
            return
        if not data:
            return
        yield data


def shown(line: str) -> str:
    """Return what stays visible of a line that was drawn over itself."""
    return ESCAPES.sub("", line.rstrip("\r")).rpartition("\r")[2].rstrip()


def paced(lines: Sequence[Printed]) -> list[Printed]:
    """Return `lines` with each wait between the shortest and the longest of a film."""
    result, previous_s, at_s = [], 0.0, 0.0
    for line in lines:
        at_s += min(max(line.at_s - previous_s, SHORTEST_WAIT_S), LONGEST_WAIT_S)
        previous_s = line.at_s
        result.append(Printed(at_s, line.text))
    return result


def film(command: str, lines: Sequence[Printed]) -> str:
    """Return an SVG in which `lines` appear one after the other, over and over."""
    film_lines = [Printed(0.0, f"$ {command}"), *paced(lines)]
    end_s = film_lines[-1].at_s + HOLD_S
    rows, frames, row = [], [], 0
    for number, line in enumerate(film_lines):
        parts = textwrap.wrap(line.text, COLUMNS, subsequent_indent=" " * 15) or [""]
        texts = "".join(text_element(part, row + index) for index, part in enumerate(parts))
        row += len(parts)
        rows.append(f'<g class="l{number}">{texts}</g>')
        frames.append(FRAMES.format(number=number, share=100 * line.at_s / end_s, end_s=end_s))
    return FRAME.format(
        width=COLUMNS * LETTER_PX + 2 * MARGIN_PX,
        height=row * ROW_PX + 2 * MARGIN_PX,
        title=escape(f"The output of {command}, line by line"),
        frames="\n".join(frames[1:]),  # the command itself is there from the start
        rows="\n".join(rows),
    )


def text_element(text: str, row: int) -> str:
    """Return one row of the terminal, its first word in the colour of a verdict."""
    y = MARGIN_PX + ROW_PX * row + 13
    first, blank, rest = text.partition(" ")
    colour = COLOURS.get(first)
    words = (
        f'<tspan fill="{colour}" font-weight="bold">{escape(first)}</tspan>{escape(blank + rest)}'
        if colour
        else escape(text)
    )
    return f'<text x="{MARGIN_PX}" y="{y}" xml:space="preserve">{words}</text>'


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve `folder` on loopback; yield its address."""
    handler = functools.partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def photograph(site: Path, stem: str) -> None:
    """Write pictures of the simulated page some moments after a link has gone silent."""
    with served(site) as address, browser.browser() as page:
        for scheme in ("light", "dark"):
            page.open("about:blank")
            page.open(f"{address}{ADDRESS}{FAILURE}", width=1180, height=760, scheme=scheme)
            wait_until(NOTICED, lambda: page.evaluate(NOTICED), timeout_s=LOADING_S)
            page.screenshot(Path(f"{stem}_{scheme}.png"))


def main() -> None:
    """Draw what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    terminal = kinds.add_parser("terminal")
    terminal.add_argument("output", type=Path)
    terminal.add_argument("command", nargs=argparse.REMAINDER)
    page = kinds.add_parser("page")
    page.add_argument("site", type=Path, help="the folder that make docs writes, docs/_build")
    page.add_argument("stem")
    options = parser.parse_args()
    if options.kind == "page":
        if not browser.program():
            sys.exit("pictures: needs Chromium: apt-get install chromium")
        photograph(options.site, options.stem)
        return
    command = [*options.command]
    options.output.write_text(film(" ".join(command), recorded(command)), encoding="utf-8")


if __name__ == "__main__":
    main()
