"""Traffic-aware routing on FiConn, TAR (CCRDN 4.2.3)."""
