"""LBSP: queues, completion times and recovery on fat-trees."""
