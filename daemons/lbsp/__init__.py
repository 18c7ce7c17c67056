"""Load balancing with symmetric path groups, LBSP (Lim, Appl. Sci. 2021)."""
