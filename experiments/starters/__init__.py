"""Packages and labs that `weft new` writes, and that work as they are."""
