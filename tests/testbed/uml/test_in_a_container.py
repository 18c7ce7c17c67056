"""The kernel for virtual time under the filter of system calls of a container of Docker."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Of that filter, the rule for personality(2) on x86-64: no ADDR_NO_RANDOMIZE.
FILTERED = """
import ctypes, os, struct, sys
SYS_PERSONALITY, ADDR_NO_RANDOMIZE = 135, 0x40000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
EPERM, ALLOW = 0x00050001, 0x7FFF0000
NUMBER, FIRST_ARGUMENT = 0, 16  # offsets in struct seccomp_data
rules = [
    (LOAD, 0, 0, NUMBER),
    (JUMP_IF_EQUAL, 0, 3, SYS_PERSONALITY),
    (LOAD, 0, 0, FIRST_ARGUMENT),
    (JUMP_IF_EQUAL, 0, 1, ADDR_NO_RANDOMIZE),
    (RETURN, 0, 0, EPERM),
    (RETURN, 0, 0, ALLOW),
]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
libc = ctypes.CDLL(None, use_errno=True)
filter = struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(program))
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.virtual
def test_a_filter_that_forbids_fixed_addresses_is_one_line_with_the_remedy():
    weft = [sys.executable, "-m", "weft.experiments.cli.cli", "uml", "--clock", "virtual"]
    command = [sys.executable, "-c", FILTERED, *weft, "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) == (1, 1), done.stderr
    assert "docker run --security-opt seccomp=unconfined" in lines[0]
