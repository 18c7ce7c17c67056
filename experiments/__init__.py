"""Questions, results, plots, and the `weft` command."""

# so that every command and worker can build file:PATH
from weft.testbed.labs import graph_file as graph_file
