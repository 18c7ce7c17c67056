"""Questions, results, plots, and the `weft` command."""

from weft.testbed.labs import graph_file as graph_file  # so that every command and worker can build file:PATH
