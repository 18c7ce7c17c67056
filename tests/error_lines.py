"""Standard error of a command without the progress that a slow machine adds."""


def error_lines(stderr: str) -> list[str]:
    """Return the lines that do not tell what goes on, as console.stages() does after seconds."""
    return [line for line in stderr.splitlines() if not line.startswith("bringing up: ")]
