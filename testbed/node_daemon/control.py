"""The daemons of a run, seen from outside: start them, end them, ask them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from weft.testbed.node_daemon import control_socket
from weft.testbed.node_daemon.counters import FILE, DaemonCounters
from weft.testbed.node_daemon.daemon import REKEY
from weft.testbed.node_daemon.daemon_set import Daemons
from weft.testbed.node_daemon.supervisor import READY, SOCKET, START_S, STOP_S
from weft.testbed.runs import isolated_python, private_files
from weft.testbed.runs.run import ENVIRONMENT, RunRecord

# Lines that stand at the margin of a traceback and are no errors themselves.
TRACEBACKS = ("Traceback ", "During handling of the above", "The above exception was")


def launch(
    run: RunRecord,
    daemons: Daemons,
    *,
    nodes: int,
    processes: int,
    keep: int | None = None,
    restart: bool = True,
) -> int:
    """Start the daemons of `run`, and return their supervisor's process id when each is ready to
    serve.

    nodes: of the whole network, whose counters there are to be.
    processes: how many serve the daemons.
    keep: the descriptor of the run's lock: the supervisor keeps the run alive from now on.  None:
        it ends when this process does.
    restart: whether daemons that die are started again, and the supervisor, too.
    Raises OSError with the supervisor's own words if it cannot start them.
    """
    daemons.write(run.directory)
    DaemonCounters(run.directory / FILE, create_nodes=nodes).close()
    log = run.directory / "log"
    private_files.make_folder(log)
    owner, lock = (os.getpid(), -1) if keep is None else (0, keep)
    argv = [str(run.directory), *map(str, (processes, owner, lock, int(restart)))]
    # Without site: a daemon needs no package but ours and its scheme's; start-up files cost time
    # and memory.
    command = isolated_python.command(
        "weft.testbed.node_daemon.supervisor", argv, packages=False, search=search_path(daemons)
    )
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with open(private_files.open_file(log / "supervisor.err", flags), "w") as errors:
        process = subprocess.Popen(
            command,
            cwd=isolated_python.FOLDER,
            env=isolated_python.environment({ENVIRONMENT: run.id}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=() if keep is None else (keep,),
            start_new_session=True,  # Ctrl-C on a terminal is not for daemons
        )
    assert process.stdout
    with process.stdout as said:
        if said.readline().strip() != READY:
            process.wait()
            raise OSError(
                f"{errors_in((log / 'supervisor.err').read_text())}: daemons did not start"
            )
    return process.pid


def errors_in(log: str) -> str:
    """Return the errors that `log` tells, the cause first, without their tracebacks."""
    lines = (
        line.strip()
        for line in log.splitlines()
        if line[:1].strip() and not line.startswith(TRACEBACKS)
    )
    return "; ".join(dict.fromkeys(lines)) or "the supervisor ended without a word"


def search_path(daemons: Daemons) -> list[Path]:
    """Return the folders in which daemons find the modules of schemes that other packages
    register."""
    folders = []
    for module in sorted({config.module for config in daemons.configs.values()}):
        file = import_module(module).__file__
        # by name: a checkout's .venv lies below weft's own folder
        if file and not module.startswith("weft."):
            folders.append(
                Path(file).parents[module.count(".") + (Path(file).name == "__init__.py")]
            )
    return list(dict.fromkeys(folders))


def start(directory: Path, name: str) -> int:
    """Start the daemon of the node called `name`; its process id.  ValueError if it has one, or
    cannot have one."""
    return int(_request(directory, "start", name)["pid"])


def stop(directory: Path, name: str) -> None:
    """Ask the daemon of the node called `name` to end, and return when it has.  ValueError if it
    has none."""
    _request(directory, "stop", name)


def kill(directory: Path, name: str) -> None:
    """End the daemon of the node called `name` by SIGKILL.  ValueError if it has none."""
    _request(directory, "kill", name)


def restart(directory: Path, name: str) -> int:
    """End the daemon of the node called `name`, if it has one, also if it hangs, and start it; its
    process id."""
    return int(_request(directory, "restart", name)["pid"])


def processes(directory: Path) -> dict[str, dict[str, Any]]:
    """By name of each node that may have a daemon: `pid`, None if it has none, and how its last one
    `ended`, None if none has."""
    return _request(directory, "list")


def status(directory: Path, name: str) -> dict[str, Any]:
    """What the daemon of the node called `name` knows; ValueError if it has none."""
    return control_socket.ask(directory, name, "status")


def rekey(directory: Path, names: Iterable[str]) -> None:
    """Have the daemons of all nodes with these names that have one read the run's keys; ValueError
    if one cannot."""
    for name in names:
        if control_socket.holder(directory, name) is not None:
            control_socket.ask(directory, name, REKEY)


def _request(directory: Path, *words: str) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as asking:
        asking.settimeout(START_S + STOP_S)
        try:
            asking.connect(str(directory / SOCKET))
        except (FileNotFoundError, ConnectionRefusedError):
            raise ValueError(
                f"run {directory.name} has no daemons, or their supervisor has died"
            ) from None
        with asking.makefile("rw") as stream:
            stream.write(json.dumps(words) + "\n")
            stream.flush()
            told: dict[str, Any] = json.loads(stream.readline())
    if "error" in told:
        raise ValueError(told["error"])
    return told
