"""What routing protocols share: hellos, link state and its flooding, candidate routes, scoped
flooding."""
