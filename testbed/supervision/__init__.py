"""What starts the daemons of a run, watches them, starts them again, and carries out what is asked of them."""
