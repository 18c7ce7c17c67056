"""Questions, results, plots, and the `weft` command."""

# so that every command and worker can build file:PATH, and every network can be drawn
from weft.experiments.report import notebook as notebook
from weft.testbed.labs import graph_file as graph_file
