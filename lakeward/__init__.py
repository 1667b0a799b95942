"""The words every stage shares, and the command line on top of them."""
