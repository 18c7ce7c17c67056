"""CCRDN: DCell, beta-DCell and FiConn, on the graph and on the kernel."""
