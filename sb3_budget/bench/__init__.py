"""Arms, seeds, statistics, plots: the command line ``sb3-budget``."""
