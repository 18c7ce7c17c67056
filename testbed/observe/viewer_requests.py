"""Requests of a viewer of a run: break, mend, inspect.  Requests and replies are JSON.

A request names an action (`do`) and its arguments.  Every name is looked up in the topology before
the action begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from weft.daemons.core import registry
from weft.daemons.core.node_config import routers
from weft.daemons.routing import path_shares
from weft.testbed.linux import fib
from weft.testbed.measure.traceroute import trace
from weft.testbed.network import impair
from weft.testbed.network.impair import set_rate
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.testbed.observe.port_reader import PortReader
from weft.testbed.plan.element import LinkElement, parse_element
from weft.topologies.core.address import dotted
from weft.topologies.core.failures import fail_links
from weft.topologies.core.link import rate_bps

LOG_LINES, LOG_BYTES = 40, 8192  # the end of a node's log
TRACE_S, TRACE_RETRIES = 0.4, 1
ViewerReply = dict[str, Any]


class Actions:
    """Carry out requests on `network`.

    Actions enter namespaces, so the calling thread must serve nothing else.
    """

    def __init__(self, network: RunningNetwork) -> None:
        self._network = network
        self._known: Mapping[str, Callable[..., ViewerReply | None]] = {
            "fail": self._fail,
            "restore": self._restore,
            "degrade": self._degrade,
            "impair": self._impair,
            "link": self._link,
            "scheme": network.change_scheme,
            "restart": self._restart,
            "path": self._path,
            "node": self._node,
            "ports": self._ports,
        }
        self._reader: PortReader | None = None

    def do(self, request: Mapping[str, Any]) -> ViewerReply:
        """Carry out `request`; the reply has `error`, one line, if that fails."""
        arguments = dict(request)
        action = self._known.get(str(arguments.pop("do", None)))
        kinds = {"silent": bool}  # other arguments are texts
        if not action or not all(
            isinstance(value, kinds.get(name, str)) for name, value in arguments.items()
        ):
            return {"error": f"unknown request; known are {', '.join(self._known)}"}
        try:
            return action(**arguments) or {}
        except TypeError:
            names = ", ".join(arguments)
            return {"error": f"{request['do']}: an argument is missing or superfluous: {names}"}
        except (ValueError, OSError, TimeoutError) as error:
            return {"error": " ".join(str(error).split())}

    def _fail(self, what: str, silent: bool = False, only_to: str | None = None) -> None:
        self._network.fail(what, silent=silent, only_to=only_to)

    def _restore(self, what: str) -> None:
        self._network.restore(what)
        if isinstance(parse_element(self._network.topology, what), LinkElement):
            impair.undo(self._network, what)

    def _degrade(self, link: str, rate: str) -> None:
        set_rate(self._network, link, rate_bps(rate))

    def _impair(self, link: str, loss: str | None = None, delay: str | None = None) -> None:
        impair.impair(self._network, link, impair.impairment(loss=loss, delay=delay))

    def _link(self, link: str) -> ViewerReply:
        """Return `loss_percent` and `delay_us` of the link towards its second end."""
        spec = impair.kernel_link(self._network, self._network.topology.link(link))
        return {"loss_percent": spec.loss_ppb / 1e7, "delay_us": spec.delay_us} if spec else {}

    def _ports(self) -> ViewerReply:
        """Return bytes, drops and waiting packets of both ends of each link, since it came up."""
        network = self._network
        if self._reader is None:
            self._reader = PortReader(network, shaped=bool(network.plan.link_specs))
        reading = self._reader.read(everything=True)
        row_of = {port: row for row, port in enumerate(self._reader.ports)}
        columns = (reading.sent_bytes, reading.drops, reading.waiting)
        ports = {}
        for link, (a, pa, b, pb) in enumerate(network.topology.links.tolist()):
            rows = row_of[a, pa], row_of[b, pb]
            counters = [int(column[row]) for column in columns for row in rows]
            ports[network.topology.link_name(link)] = counters
        return {"ports": ports}

    def _restart(self, node: str) -> None:
        """Stop the node's daemon, if it has one, and start it."""
        control.restart(self._network.run.directory, self._name(node))

    def _name(self, node: str) -> str:
        return self._network.plan.names[self._network.topology.naming.node(node)]

    def _path(self, src: str, dst: str) -> ViewerReply:
        """Return `nodes` and `links` of the path of packets, and `reason` if they are lost.

        Where packets may take several paths, also what path_shares.several() returns.
        """
        topology = self._network.topology
        name = topology.naming.name
        ends = topology.naming.node(src), topology.naming.node(dst)
        for node in ends:
            if topology.is_crossbar(node):
                raise ValueError(f"{name(node)} is a crossbar: it has no address")
        (path,) = trace(self._network, [ends], timeout_s=TRACE_S, retries=TRACE_RETRIES)
        return {
            **path_shares.named(topology, path.nodes),
            "reason": path.reason,
            **self._several_paths(*ends),
        }

    def _several_paths(self, src: int, dst: int) -> ViewerReply:
        topology = self._network.topology
        spec = str(self._network.run.journal["scheme"])
        known = spec.partition(":")[0] in registry.schemes()
        if not known or max(src, dst) >= topology.servers:
            return {}
        live = fail_links(topology, self._network.failed_links())
        return path_shares.several(live, *registry.scheme(spec), src, dst)

    def _node(self, node: str) -> ViewerReply:
        """Return a node's `links`, `address`, `neighbours`, `routes` and the end of its `log`."""
        topology = self._network.topology
        plan = self._network.plan
        number = topology.naming.node(node)
        name = plan.names[number]
        reply: ViewerReply = {
            "node": name,
            "label": topology.naming.label(number),
            "namespace": plan.namespace(number),
            "links": [topology.link_name(link) for *_, link in topology.ports(number)],
            "neighbours": None,
            "routes": {},
            "log": [],
        }
        if topology.is_crossbar(number):
            return reply
        reply["address"] = dotted(topology.naming.address(number))
        reply["routes"] = self._routes(number)
        if number in set(routers(topology)):
            directory = self._network.run.directory
            with suppress(ValueError, TimeoutError):
                protocol = control.status(directory, name)["protocol"]
                reply["neighbours"] = protocol.get("neighbours")
            reply["log"] = last_lines(directory / "log" / f"{name}.log")
        return reply

    def _routes(self, node: int) -> dict[str, list[str]]:
        """Return the hops, "address device", by prefix."""
        devices = {end.ifindex: end.dev for end in self._network.plan.ends[node].values()}
        with self._network.at(node) as socket:
            routes = fib.routes(socket)
        return {
            str(prefix): [f"{dotted(address)} {devices.get(index, '')}" for index, address in hops]
            for prefix, hops in sorted(routes.items())
        }


def last_lines(path: Path) -> list[str]:
    """Return the last lines of a log; none if there is no log."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_BYTES))
        return file.read().decode(errors="replace").splitlines()[-LOG_LINES:]
    return []
