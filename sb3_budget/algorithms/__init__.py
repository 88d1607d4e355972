"""Algorithms of sb3-contrib that lack an argument for the rollout buffer."""
