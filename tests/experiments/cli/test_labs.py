"""The labs of labs/: right answers pass and wrong ones do not.

An answer that a lab does not allow is refused without a kernel.  The others are graded on one, so
their tests are slow; the answers of one lab are graded side by side.
"""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from weft.testbed.labs.lab_file import NamedText, parse

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "weft.experiments.cli.cli", "check"]
EVERYWHERE = (  # no lab allows them
    "topology: star:n=2",
    "checks: []",
    "events: []",
    "answer: {scheme: any}",
    "commands: {h0: ['true']}",
    "links: []",
    "host_link: {rate: 1gbit}",
    "link: {rate: 1gbit}",
    "mtu: 9000",
    "scheme: nosuch",
)
REFUSED = {
    "shortest_paths": (
        "scheme: tar",
        "scheme: dr",
        "link: {delay: 0ms}",
        "scheme: 'bfs:dead=0'",
    ),
    "hellos": (
        "scheme: ecmp",
        "scheme: static",
        "scheme: 'bfs:hello_ms=0,dead=3'",
        "scheme: 'bfs:hello_ms=100,dead=3,hold_ms=0'",
        "scheme: 'bfs:hello_ms=480,dead=1'",
        "hello_ms: 100",
    ),
    "ecmp_spraying": ("link: {rate: 20mbit, queue: 60}", "scheme: dr", "link: {queue: 600}"),
    "polarisation": (
        "scheme: rps",
        "scheme: 'vlb:per=packet'",
        "scheme: 'ecmp:ecn=20'",
        "scheme: letflow",
        "link: {rate: 20mbit}",
    ),
    "spraying_trimming": (
        "{scheme: rps, link: {trim: 9}}",
        "{scheme: rps, link: {trim: 6, queue: 64}}",
        "{scheme: tar, link: {trim: 6}}",
        "{scheme: rps, host_link: {trim: 6}}",
    ),
    "incast": (
        "link: {rate: 20mbit, queue: 64}",
        "link: {rate: 40mbit, queue: 8}",
        "link: {trim: 9}",
        "link: {rate: 20mbit, queue: 64, trim: 8}",
        "scheme: drill",
        "link: {trim: some}",
    ),
    "own_scheme": ("scheme: bfs", "scheme: ecmp", "scheme: rps", "scheme: 'bfs:hello_ms=10'"),
}
FAILING = {
    "shortest_paths": ("scheme: none", "scheme: 'bfs:hold_ms=2000'"),
    "hellos": (
        "scheme: 'bfs:hello_ms=200,dead=4'",
        "scheme: 'bfs:hello_ms=66,dead=7'",
        "scheme: 'bfs:hello_ms=150,dead=4'",
    ),
    "ecmp_spraying": ("scheme: dmodk", "scheme: vlb", "scheme: 'letflow:gap_us=100000'"),
    "polarisation": ("scheme: bfs", "scheme: 'ecmp:seeds=same'"),
    "spraying_trimming": (
        "scheme: rps",
        "{scheme: vlb, link: {trim: 6}}",
        "{scheme: dmodk, link: {trim: 6}}",
        "{scheme: rps, link: {trim: 1}}",
    ),
    "incast": ("link: {trim: 1}",),
}
PASSING = {
    "shortest_paths": ("scheme: rps", "{scheme: letflow, link: {rate: 20mbit, queue: 50}}"),
    "hellos": ("scheme: 'bfs:hello_ms=67,dead=7'", "scheme: 'bfs:hello_ms=100,dead=5'"),
    "ecmp_spraying": ("scheme: rps", "scheme: 'vlb:per=packet'"),
    "polarisation": ("scheme: vlb", "scheme: dmodk", "scheme: static"),
    "spraying_trimming": ("{scheme: drill, link: {trim: 4}}", "{scheme: rps, link: {trim: 2}}"),
    "incast": ("link: {trim: 2}", "link: {trim: 8}"),
}
# changes of the sample answer's module, with the scheme to name
WHOLE = "self._current.get(prefix) == hops[:1]"
FIRST = "first = tuple(hop for hop in hops if self.lives(hop))[:1]"
ORDERED = "sorted(set(ports) - {peer} - set(range(topology.servers)))"
OWN_PASSING = {
    "another name": ('"detour"', '"mine"', "mine"),
    "another way to choose": (FIRST, "first = next(filter(self.lives, hops), None)\n"
                              "            first = (first,) if first else ()", "detour"),
}  # fmt: skip
OWN_FAILING = {
    "too slow hellos": ("", "", "detour:hello_ms=300"),
    "the last router first": (ORDERED, f"{ORDERED}[::-1]", "detour"),
    "always r2": (ORDERED, "sorted({topology.servers + 2} & set(ports) - {peer})", "detour"),
    "without the last router": (
        ORDERED,
        "sorted(set(ports) - {peer, topology.servers + 4} - set(range(topology.servers)))",
        "detour",
    ),
    "the next router after the destination": (
        ORDERED,
        f"sorted({ORDERED}, key=lambda node: (node < peer, node))",
        "detour",
    ),
    "all other routers at once": (
        FIRST,
        "first = tuple(hop for hop in hops if self.lives(hop))\n"
        "            first = first[:1] if first[:1] == hops[:1] else first",
        "detour",
    ),
    "no way back": (
        FIRST,
        f"{FIRST}\n            kept = self._current.get(prefix, ())"
        "\n            first = kept if kept and self.lives(kept[0]) else first",
        "detour",
    ),
}
OF_BFS = """
from dataclasses import replace
from weft.daemons.shortest_paths.scheme import SCHEMES
SCHEMES = tuple(replace(scheme, name="mine") for scheme in SCHEMES if scheme.name == "bfs")
"""


def grade(lab, answer, folder, module=None):
    """Return the exit status and the report of `weft check`."""
    folder.mkdir()
    (folder / "answer.yaml").write_text(answer)
    environment = dict(os.environ)
    if module:  # as pip would install it
        (folder / "own_scheme.py").write_text(module)
        about = folder / "own_scheme-1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-scheme\nVersion: 1\n")
        (about / "entry_points.txt").write_text("[weft.schemes]\nown = own_scheme\n")
        environment["PYTHONPATH"] = str(folder)
    # the kernel sees the lab's folder, and the module must lie where it sees it
    shutil.copy(ROOT / "labs" / lab / "lab.yaml", folder)
    words = [str(folder / "lab.yaml"), "--answer", str(folder / "answer.yaml")]
    done = subprocess.run(
        [*COMMAND, *words, "--json", "--trust"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def passes(jobs):
    """Return by answer whether it passes; some are graded at the same time."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = {name: pool.submit(grade, *job) for name, job in jobs.items()}
    return {name: result.result()[0] == 0 for name, result in results.items()}


@pytest.mark.parametrize("lab", REFUSED)
def test_what_a_lab_does_not_allow_is_refused_without_a_kernel(lab):
    path = ROOT / "labs" / lab / "lab.yaml"
    answers = [*EVERYWHERE, *REFUSED[lab]]
    assert len(answers) >= 10
    for answer in answers:
        with pytest.raises(ValueError, match=r"^answer\.yaml:1: [^\n]+$"):
            parse(path.read_text(), name=str(path), answer=NamedText(answer, "answer.yaml"))


@pytest.mark.slow
@pytest.mark.virtual
@pytest.mark.parametrize("lab", PASSING)
def test_right_answers_pass_and_wrong_ones_do_not(lab, tmp_path):
    expected = dict.fromkeys(PASSING[lab], True) | dict.fromkeys(FAILING[lab], False)
    jobs = {answer: (lab, answer, tmp_path / str(number)) for number, answer in enumerate(expected)}
    assert passes(jobs) == expected


@pytest.mark.slow
@pytest.mark.virtual
def test_right_schemes_of_ones_own_pass_and_wrong_ones_do_not(tmp_path):
    sample = (ROOT / "labs" / "answers" / "own_scheme" / "weft_detour.py").read_text()
    jobs = {"bfs by another name": ("own_scheme", "scheme: mine", tmp_path / "bfs", OF_BFS)}
    for number, (name, change) in enumerate((OWN_PASSING | OWN_FAILING).items()):
        old, new, scheme = change
        assert old in sample, name
        module = sample.replace(old, new).replace(WHOLE, "prefix in self._current")
        jobs[name] = ("own_scheme", f"scheme: {scheme}", tmp_path / str(number), module)
    assert passes(jobs) == {name: name in OWN_PASSING for name in jobs}
