"""Start, end and query the daemons of a run, from outside."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from weft.testbed.node_daemon import daemon_files
from weft.testbed.node_daemon.counters import FILE, DaemonCounters
from weft.testbed.node_daemon.daemon import REKEY
from weft.testbed.node_daemon.daemon_files import Daemons
from weft.testbed.node_daemon.supervisor import NAME, READY, START_S, STOP_S
from weft.testbed.runs import isolated_python, private_files
from weft.testbed.runs.run import ENVIRONMENT, RunRecord

# lines at the margin of a traceback that are no errors themselves
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
    """Start the daemons of `run`, and return when each is ready to serve.

    Args:
        run: of the network.
        daemons: configurations and interfaces.
        nodes: number of nodes of the whole network, which all have counters.
        processes: number of processes that share the daemons.
        keep: descriptor of the run's lock, which keeps the run alive and is the supervisor's from
            now on.  None: the supervisor ends with this process.
        restart: start daemons again that die, and the supervisor, too.

    Returns:
        The supervisor's process id.

    Raises:
        OSError: the daemons did not start; the line has the supervisor's errors.
    """
    daemons.write(run.directory)
    DaemonCounters(run.directory / FILE, create_nodes=nodes).close()
    private_files.make_folder(run.directory / "log")
    owner, lock = (os.getpid(), -1) if keep is None else (0, keep)
    argv = [str(run.directory), *map(str, (processes, owner, lock, int(restart)))]
    # without site: a daemon needs weft's packages and its scheme's only; start-up files cost time
    command = isolated_python.command(
        "weft.testbed.node_daemon.supervisor", argv, packages=False, search=search_path(daemons)
    )
    return _start_supervisor(run, command, () if keep is None else (keep,))


def _start_supervisor(run: RunRecord, command: list[str], descriptors: tuple[int, ...]) -> int:
    """Start the supervisor, and return its process id when it is ready."""
    error_file = run.directory / "log" / "supervisor.err"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with open(private_files.open_file(error_file, flags), "w") as errors:
        process = subprocess.Popen(
            command,
            cwd=isolated_python.FOLDER,
            env=isolated_python.environment({ENVIRONMENT: run.id}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl-C on a terminal is not for daemons
        )
    assert process.stdout
    with process.stdout as output:
        if output.readline().strip() != READY:
            process.wait()
            raise OSError(f"{errors_in(error_file.read_text())}: daemons did not start")
    return process.pid


def errors_in(log: str) -> str:
    """Return the errors in `log`, the cause first, without their tracebacks."""
    lines = (
        line.strip()
        for line in log.splitlines()
        if line[:1].strip() and not line.startswith(TRACEBACKS)
    )
    return "; ".join(dict.fromkeys(lines)) or "the supervisor ended without a message"


def search_path(daemons: Daemons) -> list[Path]:
    """Return the folders that hold the modules of schemes from other packages."""
    folders = []
    for module in sorted({config.module for config in daemons.configs.values()}):
        file = import_module(module).__file__
        # the name decides, because a checkout's .venv lies below weft's own folder
        if file and not module.startswith("weft."):
            folders.append(
                Path(file).parents[module.count(".") + (Path(file).name == "__init__.py")]
            )
    return list(dict.fromkeys(folders))


def start(directory: Path, name: str) -> int:
    """Start the daemon of the node called `name`, and return its process id.

    Raises:
        ValueError: the node has a daemon, or cannot have one.
    """
    return int(_request(directory, f"start {name}")["pid"])


def stop(directory: Path, name: str) -> None:
    """Ask the daemon of the node called `name` to end, and return when it has.

    Raises:
        ValueError: the node has no daemon.
    """
    _request(directory, f"stop {name}")


def kill(directory: Path, name: str) -> None:
    """End the daemon of the node called `name` by SIGKILL.

    Raises:
        ValueError: the node has no daemon.
    """
    _request(directory, f"kill {name}")


def restart(directory: Path, name: str) -> int:
    """Start the daemon of the node called `name` again, also if it hangs; return its process id."""
    return int(_request(directory, f"restart {name}")["pid"])


def status(directory: Path, name: str) -> dict[str, Any]:
    """Return the state of the daemon of the node called `name`.

    Raises:
        ValueError: the node has no daemon.
    """
    return daemon_files.ask(directory, name, "status")


def rekey(directory: Path, names: Iterable[str]) -> None:
    """Have the daemons of these nodes read the run's keys; nodes without a daemon are skipped.

    Raises:
        ValueError: a daemon cannot read them.
    """
    for name in names:
        if daemon_files.holder(directory, name) is not None:
            daemon_files.ask(directory, name, REKEY)


def _request(directory: Path, request: str) -> dict[str, Any]:
    """Return the supervisor's answer to `request`."""
    if daemon_files.holder(directory, NAME) is None:
        raise ValueError(f"run {directory.name} has no daemons, or their supervisor has died")
    return daemon_files.ask(directory, NAME, request, START_S + STOP_S)
