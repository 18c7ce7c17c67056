"""Parts that routing protocols share: hellos, link state, candidate routes, scoped flooding."""
