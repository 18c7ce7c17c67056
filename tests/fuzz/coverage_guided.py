"""Hostile messages that a coverage-guided fuzzer makes: python -m tests.fuzz.coverage_guided
[--messages N] [FOLDER].

Atheris (libFuzzer) changes messages, and keeps those that reach code of daemons/ which none has
reached before.  It says each to one daemon of a small converged network in the simulator, the first
three bytes of its input saying of which scheme, at which node and which port.  It begins with what
hostile_messages.py begins with, and with coverage_corpus.txt, which is what it has found; --keep
adds to that.  As there, a state machine may
raise nothing but Garbage.

Atheris is not among the packages that weft needs: there are wheels of it for x86-64 only.  pip
install '.[fuzz]'.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import tempfile
from pathlib import Path
from random import Random

import atheris

import weft.daemons

with atheris.instrument_imports(include=["weft.daemons"]):
    # each scheme's own are imported late
    for module in pkgutil.walk_packages(weft.daemons.__path__, "weft.daemons."):
        importlib.import_module(module.name)
    from tests.fuzz.hostile_messages import COVERAGE_CORPUS, Campaign, inputs, schemes

LIVES = 5000  # messages that a network hears before another takes its place
LONGEST = 600  # bytes
BEGIN = "begin-"  # of the names of what a search begins with


class Networks:
    """A campaign for each scheme, made when it is needed first, and anew now and then."""

    def __init__(self) -> None:
        self.names = schemes()
        self.campaigns: dict[str, tuple[Campaign, int]] = {}

    def say(self, data: bytes) -> None:
        """Let the daemon that `data` begins with hear the rest; RuntimeError if it raises."""
        if len(data) < 3:
            return
        name = self.names[data[0] % len(self.names)]
        campaign, said = self.campaigns.get(name, (None, LIVES))
        if campaign is None or said >= LIVES:
            campaign, said = Campaign(name, Random(f"1 {name}")), 0
        self.campaigns[name] = campaign, said + 1
        campaign.say_input(data)
        if said % 50 == 0:
            campaign.pass_time(0.002)
        if campaign.failures:
            raise RuntimeError(campaign.failures[0].line())


def keep(folder: Path) -> None:
    """Add to coverage_corpus.txt what libFuzzer has put into `folder`, as it reaches other code
    than all before it."""
    names, lines = schemes(), set(COVERAGE_CORPUS.read_text().splitlines())
    for path in folder.iterdir():
        data = path.read_bytes()
        if len(data) >= 3 and not path.name.startswith(BEGIN):
            name = names[data[0] % len(names)]
            lines.add(f"{name} {data[1]} {data[2]} {data[3:].hex()}".rstrip())
    COVERAGE_CORPUS.write_text("".join(f"{line}\n" for line in sorted(lines)))


def main() -> None:
    """Exit status other than 0 if a state machine raised."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, default=1_000_000)
    arguments.add_argument(
        "--keep", action="store_true", help="add what FOLDER has to coverage_corpus.txt"
    )
    arguments.add_argument(
        "folder", nargs="?", type=Path, help="of what is found; default: a temporary one"
    )
    options = arguments.parse_args()
    if options.keep:
        keep(options.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        for number, data in enumerate(inputs()):
            (folder / f"{BEGIN}{number}").write_bytes(data)
        words = [
            f"-runs={options.messages}",
            f"-max_len={LONGEST}",
            "-timeout=60",
            "-rss_limit_mb=4096",
        ]
        atheris.Setup(
            [sys.argv[0], *words, f"-artifact_prefix={folder}/", str(folder)], Networks().say
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
