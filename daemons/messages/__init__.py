"""All messages that daemons exchange, described field by field: for tools that show them."""
