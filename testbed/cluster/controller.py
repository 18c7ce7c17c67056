"""The controller of a run over several machines: it starts an agent on each, and keeps them.

    python -m weft.testbed.cluster.controller RUN

The journal of the run has the machines, their parts, and what all parts have in common.  The
network is up when READY is printed; without it, the errors are on standard error, and every agent
has removed its part.  On SIGTERM all agents remove their parts.

A machine is up, late or dead.  It is late when its agent is silent for LATE_S, and up again with
the next answer.  It is dead, for good, when its agent ends or is silent for GONE_S.  The controller
closes the connection to a dead one, so that its agent removes its part when it runs again.  STATE
says which are late or dead, and what their agents tell.  When all are dead the controller ends,
too; its log LOG says so.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from weft.testbed.cluster import agent
from weft.testbed.cluster.cut_links import TUNNEL_BYTES
from weft.testbed.cluster.leases import GONE_S, LATE_S, Leases
from weft.testbed.cluster.machines import ClusterMachine
from weft.testbed.linux import clock
from weft.testbed.plan.network_plan import NetworkPlan, links_from
from weft.testbed.plan.part import part_from
from weft.testbed.plan.plane_selection import fixed_routes
from weft.testbed.runs import isolated_python, private_files
from weft.testbed.runs.run import ENVIRONMENT, UNNAMED, RunRecord, find, write_journal
from weft.topologies.core.link import MTU_BYTES

STATE, LOG = "machines.json", "controller.err"
READY = "ready"
SSH_KEYS = "SSH_AUTH_SOCK"  # environment variable: the program that holds the user's keys
BEAT_S, LAST_WORDS_S, GREETING_S, END_S = 0.5, 2.0, 10.0, 60.0
Request = dict[str, Any]


@dataclass
class Connection:
    """An agent: the command that leads to it, its errors, and how often it has answered."""

    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes]
    log: Path
    is_asked: bool = False
    answers: int = 0

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request; raise what ended() returns if the agent has ended."""
        if self.is_asked:
            self.answer()  # to a beat
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.ended() from None
        self.is_asked = True

    def ended(self) -> OSError | ValueError:
        """Return the error of an agent that has ended, or never began, with its last words."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(LAST_WORDS_S)
        lines = self.log.read_text(errors="replace").strip().splitlines() or ["without a message"]
        if self.answers:
            return OSError(f"machine {self.name}: its agent has ended: {lines[-1]}")
        return ValueError(
            f"machine {self.name}: no agent starts there: {lines[-1]}; this must work without a "
            f"password: {shlex.join(self.command)}"
        )

    def output(self) -> IO[bytes]:
        """Return the stream of the agent's answers."""
        assert self.process.stdout
        return self.process.stdout

    def answer(self) -> Request:
        """Return the next answer.

        Raises:
            OSError: the agent has ended, or failed; the line has its words.
            ValueError: no agent has begun, or what it was asked cannot be.
        """
        line = self.output().readline()
        if not line:
            raise self.ended()
        try:
            answer: Request = json.loads(line)
        except ValueError:
            raise ValueError(
                f"machine {self.name}: a login there must print nothing, but prints "
                f"{line.decode(errors='replace').strip()!r}"
            ) from None
        self.is_asked = False
        self.answers += 1
        if "error" in answer:
            error = f"machine {self.name}: {answer['error']}"
            raise ValueError(error) if answer["wrong_input"] else OSError(error)
        return answer

    def close(self) -> None:
        """Tell the agent to remove its part."""
        assert self.process.stdin
        with suppress(BrokenPipeError):
            self.process.stdin.close()


class Controller:
    """The agents of a run."""

    def __init__(self, record: RunRecord) -> None:
        self._run = record
        self._journal = record.journal
        self._parts = [part_from(part) for part in self._journal["parts"]]
        self._connections: dict[str, Connection] = {}
        self._dead: dict[str, str] = {}
        self._news: dict[str, Request] = {}
        self._beats = 0

    def connect(self) -> None:
        """Start an agent on each machine."""
        environment = {name: value for name, value in os.environ.items() if name != ENVIRONMENT}
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for name, fields in self._journal["machines"].items():
            command = ClusterMachine(**fields).command(["agent"])
            log = self._run.directory / f"agent.{name}.err"
            with open(private_files.open_file(log, flags), "wb") as errors:
                process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
            self._connections[name] = Connection(name, command, process, log)

    def ask(self, requests: Mapping[str, Request]) -> dict[str, Request]:
        """Send each machine its request, and return the answers; raises what answer() raises."""
        for name, request in requests.items():
            self._connections[name].send(request)
        return self._answers(list(requests))

    def _answers(self, names: Sequence[str]) -> dict[str, Request]:
        """Return the next answer of each of these machines, the first to fail first.

        Machines that have answered wait for the others, which may take long: they get beats.
        """
        answers: dict[str, Request] = {}
        while len(answers) < len(names):
            for name in self._ready([name for name in names if name not in answers], BEAT_S):
                answers[name] = self._connections[name].answer()
            for name in answers:
                self._beat(self._connections[name])
        return answers

    def _ready(self, names: Sequence[str], timeout_s: float) -> list[str]:
        """Return those of `names` whose agents have answered, or ended."""
        by_output = {self._connections[name].output().fileno(): name for name in names}
        readable, _, _ = select.select(list(by_output), [], [], timeout_s)
        return [by_output[output] for output in readable]

    def bring_up(self) -> None:
        """Check the machines, apply all parts, and wait until all frames pass between them.

        Raises:
            OSError: a machine cannot hold its part, or failed; one line says why.
        """
        kernels = self._check_facts()
        for name, request in self._requests("apply").items():
            self._connections[name].send(request)
        digests = self._digests(kernels)  # while the agents work
        self._answers(list(digests))
        answers = self.ask({name: {"do": "start"} for name in digests})
        for name, answer in answers.items():
            if answer["digest"] != digests[name]:
                raise OSError(f"machine {name}: it applied another plan than the controller's")
        self._wait_for_greetings()
        stages: dict[str, float] = {}
        for answer in answers.values():
            for stage, seconds in answer["stages"].items():
                stages[stage] = max(seconds, stages.get(stage, 0.0))
        print(f"{READY} {json.dumps(stages)}", flush=True)

    def _check_facts(self) -> dict[str, dict[str, bool]]:
        """Return the properties of each machine's kernel, once all machines can hold their parts.

        The parts learn the delays of the underlay.

        Raises:
            OSError: one cannot; the line says why.
        """
        facts = self.ask(self._requests("facts"))
        self._parts = [
            replace(part, underlay_us=facts[part.machine]["underlay_us"]) for part in self._parts
        ]
        self._journal["parts"] = [asdict(part) for part in self._parts]
        write_journal(self._run, self._journal)
        link = self._journal["link"]
        needed = (link["mtu_bytes"] if link else MTU_BYTES) + TUNNEL_BYTES
        for name, fact in facts.items():
            if fact["code"] != agent.code():
                raise OSError(f"machine {name}: its weft is another version than the controller's")
            for peer, mtu_bytes in fact["mtu_bytes"].items():
                if mtu_bytes < needed:
                    raise OSError(
                        f"the route from machine {name} to {peer} has an MTU of {mtu_bytes}, and "
                        f"cut links need {needed}: raise the MTU of the network between them"
                    )
        return {name: fact["kernel"] for name, fact in facts.items()}

    def _requests(self, word: str) -> dict[str, Request]:
        """Return the request `word` to the agent of each machine, with its part."""
        parts = requests(self._run, self._journal)
        return {request["part"]["machine"]: {**request, "do": word} for request in parts}

    def _digests(self, kernels: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Return the digest of each machine's part of the one plan, by its kernel's properties."""
        plan = NetworkPlan(
            UNNAMED,
            agent.topology_from(self._journal),
            **links_from(self._journal),
            **fixed_routes(self._journal["scheme"]),
        )
        return {
            part.machine: agent.digest(replace(plan, part=part, **kernels[part.machine]))
            for part in self._parts
        }

    def _wait_for_greetings(self) -> None:
        """Return when every agent has heard all its peers, by messages as long as full frames."""
        end_s = clock.monotonic() + GREETING_S
        while True:
            answers = self.ask(dict.fromkeys(self._connections, self._beat_request()))
            deaf = [(name, peer) for name in answers for peer in answers[name]["waiting"]]
            if not deaf:
                return
            if clock.monotonic() > end_s:
                name, peer = deaf[0]
                raise OSError(
                    f"machine {name} hears nothing from {peer}: UDP packets of full size do not "
                    f"pass; is a firewall between them, or a path with a smaller MTU?"
                )
            clock.sleep(0.01)

    def keep(self) -> None:
        """Beat until SIGTERM, and note which machines are late, and which die.

        Raises:
            OSError: all have died.
        """
        leases = Leases(clock.monotonic(), BEAT_S)
        for name in self._connections:
            leases.renew(name)
        before: Request = {}
        while len(self._dead) < len(self._connections):
            state = self.turn(leases, clock.monotonic())
            if state != before:
                private_files.replace(self._run.directory / STATE, json.dumps(state).encode())
                before = state
            clock.sleep(BEAT_S)
        deaths = "; ".join(self._dead.values())
        raise OSError(f"{deaths}; `weft clean --machines FILE` removes what is left of the run")

    def turn(self, leases: Leases, now_s: float) -> Request:
        """Beat at all machines that live, and return their state."""
        self._beats += 1
        leases.turn(now_s)
        for name, connection in self._connections.items():
            if name in self._dead:
                continue
            answers = connection.answers
            try:
                self._beat(connection)
                if connection.answers > answers:
                    leases.renew(name)
                if name in leases.silent(GONE_S):
                    raise OSError(f"machine {name}: its agent was silent for {GONE_S:g} s")
            except (OSError, ValueError) as error:
                self._dead[name] = f"{error}"
                leases.forget(name)
                connection.close()
        late = sorted(leases.silent(LATE_S))
        return {"dead": dict(self._dead), "late": late, "news": dict(self._news)}

    def _beat(self, connection: Connection) -> None:
        """Read the answer to the last beat if it is there, and send the next one."""
        if connection.is_asked and self._ready([connection.name], 0.0):
            answer = connection.answer()
            self._news[connection.name] = {key: answer[key] for key in agent.NEWS}
        if not connection.is_asked:
            connection.send(self._beat_request())

    def _beat_request(self) -> Request:
        return {"do": "beat", "count": self._beats}

    def end(self) -> None:
        """Have all agents remove their parts, and wait for their ends."""
        for connection in self._connections.values():
            if connection.name in self._dead:
                connection.process.kill()  # it may hang
            connection.close()
        for connection in self._connections.values():
            with suppress(subprocess.TimeoutExpired):
                connection.process.wait(END_S)


def requests(record: RunRecord, journal: Mapping[str, Any]) -> list[Request]:
    """Return what the agent of each part is asked to apply."""
    common = {key: value for key, value in journal.items() if key not in ("parts", "machines")}
    return [
        {**common, "do": "apply", "run": f"{record.id}-{number}", "part": part}
        for number, part in enumerate(journal["parts"], 1)
    ]


def launch(record: RunRecord, lock: int) -> dict[str, float]:
    """Start the controller of the run, and return seconds by stage when its network is up.

    Args:
        record: the run; its journal says what to bring up.
        lock: descriptor of the run's lock, which the controller holds from now on.

    Raises:
        OSError: the network did not come up, and nothing of it remains.
        ValueError: also, because an agent cannot be started.
    """
    log = record.directory / LOG
    with open(private_files.open_file(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as errors:
        process = subprocess.Popen(
            isolated_python.command(__name__, [record.id]),
            cwd=isolated_python.FOLDER,
            env=isolated_python.environment(
                {ENVIRONMENT: record.id, SSH_KEYS: os.environ.get(SSH_KEYS, "")}
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=(lock,),
            start_new_session=True,
        )
    assert process.stdout
    try:
        with process.stdout as output:
            word, _, stages = output.readline().decode().partition(" ")
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if word != READY:
        raise _failure(log, process.wait())
    durations_s: dict[str, float] = json.loads(stages)
    return durations_s


def _failure(log: Path, status: int) -> Exception:
    """Return the error of a controller that has ended with `status`: the last line of its log."""
    lines = log.read_text().strip().splitlines()
    error = lines[-1] if lines else "the controller ended without a message"
    return ValueError(error) if status == 2 else OSError(error)


def main(argv: Sequence[str]) -> None:
    """Bring the network up, and keep it until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    controller = Controller(find(argv[0]))
    try:
        controller.connect()
        controller.bring_up()
        controller.keep()
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        sys.exit(2 if isinstance(error, ValueError) else 1)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        controller.end()


if __name__ == "__main__":
    main(sys.argv[1:])
