"""A page in the browser on which a network that is up is seen, broken and mended."""
