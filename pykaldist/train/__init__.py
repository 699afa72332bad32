"""The trainer: epochs, schedules, cross-validation, checkpoints, resume."""
