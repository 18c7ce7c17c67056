"""Switch networks of low diameter."""
