"""The graph engine: millions of pairs by compiled pure functions, workloads, fluid flows."""
