"""Ssh servers for tests, and a client that calls that at 10.99.0.2 far, with keys of their own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

needs_server = pytest.mark.usefixtures("ssh_server")
SERVER = """
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PidFile none
"""
CLIENT = """
Host far
  HostName 10.99.0.2
Host *
  User root
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
"""
# The account of root may be locked, which a server without PAM heeds; and a confined kernel cannot
# read the machine's own file of passwords.
SERVE = """
mkdir /run/sshd
echo 'root:*:19000:0:99999:7:::' >/run/shadow
mount --bind /run/shadow /etc/shadow
/usr/sbin/sshd -f {folder}/server -E {folder}/log
"""


def write_keys(folder: Path) -> None:
    """Write keys and settings of server and client."""
    for key in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(words, check=True)
    (folder / "server").write_text(SERVER.format(folder=folder))
    (folder / "client").write_text(CLIENT.format(folder=folder))
    (folder / "known_hosts").write_text(f"10.99.0.* {(folder / 'host.pub').read_text()}")


def describe(folder: Path, host: str, program: str) -> None:
    """Write machines.yaml: this machine, and one of ssh's, where weft is `program`."""
    entry = {"address": "10.99.0.2", "ssh": f"-F {folder}/client {host}", "weft": program}
    content = {"machines": {"near": {"address": "10.99.0.1"}, "far": entry}}
    (folder / "machines.yaml").write_text(json.dumps(content))
