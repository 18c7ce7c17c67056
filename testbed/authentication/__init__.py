"""Control messages that only this run's daemons can have said: keys, seals, and numbers that only rise."""
