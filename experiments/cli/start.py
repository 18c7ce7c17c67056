"""The program `weft`: Ctrl-C ends it with a line, also while its modules are imported."""

import sys


def main() -> int:
    """Run one command, and return the exit status; see cli.main()."""
    try:
        from weft.experiments.cli import cli

        return cli.main()
    except KeyboardInterrupt:
        print("weft: interrupted", file=sys.stderr)
        return 130
