"""TTC: threshold-triggered choice on fat-trees, by models and on the kernel."""
