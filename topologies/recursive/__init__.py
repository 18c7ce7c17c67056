"""Server-centric networks built recursively: DCell, beta-DCell, FiConn."""
