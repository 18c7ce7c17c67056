"""Commands that bring networks up, break them, watch them and take them down."""
