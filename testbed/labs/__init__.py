"""Networks of a user's own as files: graphs, and labs in YAML."""
