"""Where an episode starts and ends."""
