"""The decisions: where to stop, how to shift, what to log."""
