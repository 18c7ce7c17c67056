"""Licences of C files: named in the first line, and the one that a program declares to Linux."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path for folder in ("testbed", "tests") for path in ROOT.glob(f"{folder}/**/*.[ch]")
)
DUAL = "GPL-2.0-only OR MIT"


def is_for_bpf(path: Path) -> bool:
    return path.name.endswith(".bpf.c") or path.parent.name == "data_plane"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_first_line_names_the_licence(path: Path) -> None:
    text = path.read_text()
    licence = DUAL if is_for_bpf(path) else "MIT"
    assert text.startswith(f"/* SPDX-License-Identifier: {licence} */\n")
    declared = [line for line in text.splitlines() if 'SEC("license")' in line]
    assert declared in ([], ['char _license[] SEC("license") = "Dual MIT/GPL";'])
