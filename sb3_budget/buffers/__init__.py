"""What a rollout weighs."""
