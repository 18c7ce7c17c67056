"""What may be asked of a run by who watches it: break, mend, look closer.  A request is JSON, and
so is its answer.

A request names what is to be done (`do`) and on what; nothing else can be asked, and every name is
looked up in the topology before anything is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from weft.daemons.core.node_config import routers
from weft.testbed.linux import fib
from weft.testbed.measure.traceroute import trace
from weft.testbed.network import impair
from weft.testbed.network.degrade import planned, set_rate
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.testbed.plan.element import LinkElement, parse_element
from weft.topologies.core.address import dotted
from weft.topologies.core.link import rate_bps

LOG_LINES, LOG_BYTES = 40, 8192  # of a node's log, shown
TRACE_S, TRACE_RETRIES = 0.4, 1
ViewerReply = dict[str, Any]


class Actions:
    """Carries out requests on `network`, in the thread that calls; which must not be one that
    others share."""

    def __init__(self, network: RunningNetwork) -> None:
        self._network = network
        self._known: Mapping[str, Callable[..., ViewerReply]] = {
            "fail": self._fail,
            "restore": self._restore,
            "degrade": self._degrade,
            "impair": self._impair,
            "link": self._link,
            "scheme": self._scheme,
            "restart": self._restart,
            "path": self._path,
            "node": self._node,
        }

    def do(self, request: Mapping[str, Any]) -> ViewerReply:
        """Do what is asked; the answer has `error`, in one line, if it cannot be done."""
        asked = dict(request)
        action = self._known.get(str(asked.pop("do", None)))
        if not action or not all(isinstance(value, str | bool) for value in asked.values()):
            return {"error": f"there is nothing else to do than {', '.join(self._known)}"}
        try:
            return action(**asked)
        except TypeError:
            return {
                "error": (
                    f"{request['do']}: one thing too many is said, or too few: {', '.join(asked)}"
                )
            }
        except (ValueError, OSError, TimeoutError) as error:
            return {"error": " ".join(str(error).split())}

    def _fail(self, what: str, silent: bool = False, only_to: str | None = None) -> ViewerReply:
        self._network.fail(what, silent=silent, only_to=only_to)
        return {}

    def _restore(self, what: str) -> ViewerReply:
        self._network.restore(what)
        if isinstance(parse_element(self._network.topology, what), LinkElement):
            impair.undo(self._network, what)
        return {}

    def _degrade(self, link: str, rate: str) -> ViewerReply:
        planned(self._network, self._network.topology.link(link))
        set_rate(self._network, link, rate_bps(rate))
        return {}

    def _impair(self, link: str, loss: str | None = None, delay: str | None = None) -> ViewerReply:
        impair.impair(self._network, link, impair.asked(loss=loss, delay=delay))
        return {}

    def _link(self, link: str) -> ViewerReply:
        """Return `loss_percent` and `delay_us` of the link towards its second end."""
        spec = impair.kernel_link(self._network, self._network.topology.link(link))
        return {"loss_percent": spec.loss_ppb / 1e7, "delay_us": spec.delay_us} if spec else {}

    def _scheme(self, scheme: str) -> ViewerReply:
        self._network.change_scheme(scheme)
        return {}

    def _restart(self, node: str) -> ViewerReply:
        """End the node's daemon, if it has one, and start it."""
        control.restart(self._network.run.directory, self._name(node))
        return {}

    def _name(self, node: str) -> str:
        return self._network.plan.names[self._network.topology.naming.node(node)]

    def _path(self, src: str, dst: str) -> ViewerReply:
        """The path that a packet takes now, hop by hop: `nodes`, `links`, and `reason` if it does
        not arrive."""
        topology = self._network.topology
        ends = topology.naming.node(src), topology.naming.node(dst)
        for node in ends:
            if topology.is_crossbar(node):
                raise ValueError(
                    f"{topology.naming.name(node)} is a crossbar, which no packet is for"
                )
        (found,) = trace(self._network, [ends], timeout_s=TRACE_S, retries=TRACE_RETRIES)
        links = [
            link
            for a, b in zip(found.nodes, found.nodes[1:], strict=False)
            for link in self._hop(a, b)
        ]
        name = topology.naming.name
        return {
            "nodes": [name(node) for node in found.nodes],
            "links": [topology.link_name(link) for link in links],
            "reason": found.reason,
        }

    def _hop(self, a: int, b: int) -> list[int]:
        """The link from `a` to `b`, or the two by way of their crossbar."""
        topology = self._network.topology
        for _, peer, _, link in topology.ports(a):
            if peer == b:
                return [link]
            if topology.is_crossbar(peer):
                for _, other, _, second in topology.ports(peer):
                    if other == b:
                        return [link, second]
        return []

    def _node(self, node: str) -> ViewerReply:
        """What there is to know of a node: `links`, `address`, `neighbours`, `routes`, the end of
        its `log`."""
        topology, plan = self._network.topology, self._network.plan
        number = topology.naming.node(node)
        name = plan.names[number]
        told: ViewerReply = {
            "node": name,
            "label": topology.naming.label(number),
            "namespace": plan.namespace(number),
            "links": [topology.link_name(link) for *_, link in topology.ports(number)],
            "neighbours": None,
            "routes": {},
            "log": [],
        }
        if topology.is_crossbar(number):
            return told
        told["address"] = dotted(topology.naming.address(number))
        devices = {end.ifindex: end.dev for end in plan.ends[number].values()}
        with self._network.at(number) as socket:
            routes = fib.routes(socket)
        told["routes"] = {
            str(prefix): [f"{dotted(address)} {devices.get(index, '')}" for index, address in hops]
            for prefix, hops in sorted(routes.items())
        }
        if number in set(routers(topology)):
            with suppress(ValueError, TimeoutError):
                told["neighbours"] = control.status(self._network.run.directory, name)[
                    "protocol"
                ].get("neighbours")
            told["log"] = last_lines(self._network.run.directory / "log" / f"{name}.log")
        return told


def last_lines(path: Path) -> list[str]:
    """The last lines of a log; none if there is no log."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_BYTES))
        return file.read().decode(errors="replace").splitlines()[-LOG_LINES:]
    return []
