"""Proxy routing, PR (CCRDN, section 5)."""
