"""CCRDN: DCell, beta-DCell and FiConn on the graph."""
