"""mine_: a rule by which switches choose the port of each packet.

Change choose() in mine_.c first.  A parameter here is a member of struct parameters there.
"""

from pathlib import Path

from weft.daemons.load_balancing.scheme import own_rule
from weft.topologies.core.family import IntegerParameter

SCHEMES = (
    own_rule(
        "mine_",
        "the destination's port, unless its queue is longer than a random other one's",
        "a rule of yours",
        Path(__file__).with_name("mine_.c"),
        {"margin": IntegerParameter("packets by which it must be longer", 0, 1000, default=2)},
    ),
)
