"""Questions, results, plots, and the `weft` command."""
