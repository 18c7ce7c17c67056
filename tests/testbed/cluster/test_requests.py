"""Lines that are no requests: one line, status 2, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.testbed.cluster.machines_here import ROOT, WEFT
from weft.testbed.cluster.agent import WORDS, request_from

PART = {
    "machine": "a",
    "address": "10.0.0.1",
    "port": 61000,
    "nodes": [0, 1],
    "links": [0],
    "peers": {"b": "10.0.0.2"},
    "cut": {"1": "b"},
}
APPLY = {
    "do": "apply",
    "topology": "dcell:n=3,k=1",
    "graph": "",
    "link": None,
    "host_link": None,
    "own_links": {},
    "scheme": "dr",
    "run": "demo-1",
    "key": "00",
    "options": {},
    "part": PART,
}


def test_requests_are_taken_as_they_are():
    for request in (APPLY, {**APPLY, "do": "facts"}, {"do": "start"}, {"do": "beat", "count": 3}):
        assert request_from(json.dumps(request).encode() + b"\n") == request


def test_a_request_says_which_of_its_keys_is_missing_or_of_another_type():
    for key in APPLY:
        rest = {name: value for name, value in APPLY.items() if name != key}
        for request in (rest, *[{**APPLY, key: 7.5}] * (key not in ("link", "host_link"))):
            with pytest.raises(ValueError, match=key):
                request_from(json.dumps(request).encode())
    for key in PART:
        part = {name: value for name, value in PART.items() if name != key}
        with pytest.raises(ValueError, match=f"a part needs '{key}'"):
            request_from(json.dumps({**APPLY, "part": part}).encode())


LINES = [
    b"hello",
    b"",
    b"\xff\xfe",
    b"[" * 5000,
    b"[]",
    b"7",
    b"null",
    b"{}",
    b'{"do": 1}',
    b'{"do": []}',
    b'{"do": "nonsense"}',
    b'{"do": "beat"}',
    b'{"do": "beat", "count": 1e400}',
    b'{"do": "facts"}',
    b'{"do": "facts", "part": {}, "topology": "", "graph": ""}',
    json.dumps({**APPLY, "key": "zz"}).encode(),
    json.dumps({**APPLY, "part": {**PART, "cut": {"x": "b"}}}).encode(),
    json.dumps({**APPLY, "part": {**PART, "more": 1}}).encode(),
    json.dumps({**APPLY, "own_links": {"1": {"speed": 3}}}).encode(),
]


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_is_no_request_is_refused_in_one_line(line):
    with pytest.raises(ValueError, match=r"\Aagent: [^\n]+\Z"):
        request_from(line + b"\n")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from([*APPLY, "count"]), VALUES),
    st.dictionaries(st.sampled_from([*PART]), VALUES),
    st.sampled_from([*WORDS]),
)
def test_any_line_is_a_request_or_refused(changes: dict[str, Any], part: dict[str, Any], word: str):
    for request in ({**changes, "do": word}, {**APPLY, **changes, "part": {**PART, **part}}):
        with suppress(ValueError):
            assert request_from(json.dumps(request).encode())["do"] in WORDS


@pytest.mark.parametrize("line", [b"hello", b"{}", b'{"do": "facts"}', b'{"do": "apply"}'])
def test_an_agent_ends_with_one_line_and_status_2(line: bytes, tmp_path: Path):
    done = subprocess.run(
        [*WEFT, "agent"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        input=line + b"\n",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.startswith(b"weft: agent: ")
    assert done.stderr.count(b"\n") == 1
    assert not list(tmp_path.iterdir())  # no traceback
