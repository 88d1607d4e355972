"""The arithmetic of the package: functions of NumPy arrays that know nothing of Stable-Baselines3 or of environments."""
