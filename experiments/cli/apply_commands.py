"""The command that changes a running network to a lab: in place, or by a new one under its name."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from weft.experiments.cli.options import (
    Commands,
    add_command,
    add_flag,
    add_json,
    add_run,
    add_trust,
)

if TYPE_CHECKING:
    from weft.testbed.labs.lab_file import Lab
    from weft.testbed.network.network import RunningNetwork

MOST_NAMED = 3  # changes that a refusal names
KEPT_OPTIONS = ("authenticated", "restart", "outwards")  # of a run's journal


def add_commands(commands: Commands) -> None:
    """Add this file's command to the parser."""
    parser = add_command(commands, "apply", apply, "change a running network to that of a lab")
    parser.add_argument("lab", metavar="LAB", help="file such as lab.yaml")
    add_flag(parser, "--dry-run", help="print the changes and make none")
    add_flag(
        parser,
        "--replace",
        help="where nodes, links or the scheme differ, take the network down and bring the lab up "
        "under the same name",
    )
    add_json(parser)
    add_trust(parser)
    add_run(parser)


def apply(arguments: Namespace) -> int:
    """Print how a running network differs from a lab, and change or replace it."""
    from weft.testbed.labs import link_changes, running_lab
    from weft.testbed.labs.lab_file import parse
    from weft.testbed.labs.text_file import text_of
    from weft.testbed.network.network import RunningNetwork

    lab = parse(text_of(arguments.lab), name=arguments.lab)
    network = RunningNetwork.open(arguments.run)
    lab = running_lab.with_options_of(network, lab)
    changes = link_changes.changes(network, lab, replace=arguments.replace)
    fixed = [change for change in changes if isinstance(change, link_changes.FixedChange)]
    if fixed:
        _require_replaceable(network, lab, fixed, arguments)
    if arguments.json:
        print(json.dumps([change.row() for change in changes]))
    else:
        print(*changes, sep="\n", end="\n" * bool(changes))
    if not changes:
        print(f"{network.run.id} has the network of {arguments.lab}", file=sys.stderr)
    if arguments.dry_run:
        return 0
    if fixed:
        return _replace(network, lab, arguments)
    link_changes.apply(network, changes)
    return 0


def _require_replaceable(
    network: RunningNetwork, lab: Lab, fixed: list[Any], arguments: Namespace
) -> None:
    """Raise ValueError, in one line, unless the lab may and can take the place of the run."""
    from weft.experiments.cli import lab_commands
    from weft.testbed.network import bring_up

    name, journal = network.run.id, network.run.journal
    if not arguments.replace:
        named = "; ".join(map(str, fixed[:MOST_NAMED]))
        others = f" and {len(fixed) - MOST_NAMED} more" if len(fixed) > MOST_NAMED else ""
        raise ValueError(
            f"{named}{others}: only a new network has this; --replace takes run {name} down and "
            f"brings {arguments.lab} up under its name"
        )
    if not journal["detached"] or journal["part"]:
        raise ValueError(
            f"run {name} ends with its process {journal['pid']}: end it, and use weft up"
        )
    scheme = lab_commands.checked_scheme(lab)
    settings = _settings(network, lab)
    link, host_link, own_links = (settings.pop(key) for key in ("link", "host_link", "own_links"))
    options = bring_up.RunOptions(**settings)
    plan, how = bring_up.prepared(lab.topology, link, host_link, own_links, scheme, options)
    bring_up.processes_with_room(plan, how, lab.packed)
    if not arguments.dry_run:
        lab_commands.require_trust(lab, trust=arguments.trust)


def _settings(network: RunningNetwork, lab: Lab) -> dict[str, Any]:
    """Return the arguments of RunningNetwork.create() for the lab, and for options of the run."""
    from weft.experiments.cli import lab_commands

    kept = {key: network.run.journal[key] for key in KEPT_OPTIONS}
    return {**lab_commands.settings(lab), **kept}


def _replace(network: RunningNetwork, lab: Lab, arguments: Namespace) -> int:
    """Take the run down and bring the lab up under its name.

    Raises:
        OSError: the run is down and the lab is not up.
    """
    from weft.experiments.cli.network_commands import bring_up_detached, summary
    from weft.experiments.runner.console import stages

    name, settings = network.run.id, _settings(network, lab)
    with stages("taking down") as progress:
        progress(f"run {name}")
        network.down()
    try:
        replacement = bring_up_detached(lab, str(lab.scheme), name, settings)
    except (ValueError, OSError) as error:
        cause = f"run {name} is down, and {arguments.lab} did not come up: {error}"
        raise OSError(f"{cause}; weft up {arguments.lab} --detach {name} tries again") from error
    if not arguments.json:
        print(f"{name} is up: {summary(replacement)}", file=sys.stderr)
    replacement.close()
    return 0
