"""Linux: the only folder that touches the system."""

# so that every program of the testbed can build file:PATH
from weft.testbed.labs import graph_file as graph_file
