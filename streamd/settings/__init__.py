"""The settings: one row each, their values, and the command CONFIG."""
