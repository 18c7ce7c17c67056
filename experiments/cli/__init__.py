"""The `weft` command."""
