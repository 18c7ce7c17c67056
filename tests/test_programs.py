"""Every program that code and tests start by its name comes with a package of tools/setup.sh, or
with every Debian.

Seen are subprocess, shutil.which and os.exec calls whose program stands there as a literal; not
shell scripts.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("topologies", "daemons", "testbed", "experiments", "tests", "bench")
STARTERS = {"run", "Popen", "call", "check_call", "check_output", "execvp", "execv", "which"}
# What a file holds that starts one: most do not, and parsing takes long.
MAY_START = re.compile(rf"\b(?:subprocess|shutil|os)\s*\.\s*(?:{'|'.join(sorted(STARTERS))})\b")
PLACES = {"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/lib/frr"}
# Tests skip where these are not: no machine needs them.
OPTIONAL = {"vagrant", "tshark", "node", "npm"}


def program_names(tree: ast.AST) -> Iterator[str]:
    """Names of programs in calls such as subprocess.run(["tc", ...]) and shutil.which("tc")."""
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in STARTERS
        ):
            continue
        owner = node.func.value
        if (
            not (isinstance(owner, ast.Name) and owner.id in ("subprocess", "shutil", "os"))
            or not node.args
        ):
            continue
        first = node.args[0]
        if isinstance(first, ast.List | ast.Tuple) and first.elts:
            first = first.elts[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value.split()[0].rpartition("/")[2]


def test_what_is_started_is_found_in_source() -> None:
    source = (
        'subprocess.run(["tc", '
        '"qdisc"])\nshutil.which("nft")\nsubprocess.Popen(("/usr/sbin/ip", x))\nrun(["no"])'
    )
    assert list(program_names(ast.parse(source))) == ["tc", "nft", "ip"]
    assert all(MAY_START.search(line) for line in source.splitlines()[:3])


@cache
def programs() -> dict[str, set[str]]:
    """The files that start each program."""
    users = defaultdict(set)
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for name in program_names(ast.parse(text)) if MAY_START.search(text) else ():
                users[name].add(path.relative_to(ROOT).as_posix())
    return users


def packages_of_setup() -> tuple[set[str], set[str]]:
    """The packages that tools/setup.sh needs, and those that it takes where there are any."""
    text = (ROOT / "tools" / "setup.sh").read_text(encoding="utf-8")
    needed, wanted = (
        re.findall(rf'^{name}="([^"$]*)"', text, re.MULTILINE) for name in ("packages", "wanted")
    )
    return set(needed[0].split()), set(wanted[0].split())


@cache
def known_packages() -> dict[str, bool]:
    """The packages of this machine, and whether every Debian has them."""
    command = [
        "dpkg-query",
        "--show",
        "--showformat=${Package} ${Essential} ${Priority} ${db:Status-Status}\n",
    ]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    words = [line.split() for line in lines if line.endswith(" installed")]
    return {
        name: essential == "yes" or priority == "required" for name, essential, priority, _ in words
    }


def missing(packages: Collection[str]) -> dict[str, set[str]]:
    """Programs that come neither with one of `packages` nor with every Debian, and who starts
    them."""
    chosen = [
        name for name, everywhere in known_packages().items() if everywhere or name in packages
    ]
    listed = subprocess.run(
        ["dpkg", "-L", *chosen], capture_output=True, text=True, check=True
    ).stdout
    there = {
        path.name for path in map(Path, listed.splitlines()) if path.parent.as_posix() in PLACES
    }
    return {name: users for name, users in programs().items() if name not in there | OPTIONAL}


def test_every_program_comes_with_a_package_that_setup_installs() -> None:
    needed, wanted = packages_of_setup()
    if not shutil.which("dpkg-query"):
        pytest.skip("no dpkg here")
    if absent := needed - known_packages().keys():
        pytest.skip(
            f"files of packages are not known before `make setup` has been run: "
            f"{', '.join(sorted(absent))}"
        )
    assert not missing(needed | wanted)
    assert "nft" in missing(needed - {"nftables"})
