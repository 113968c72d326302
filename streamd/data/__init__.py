"""The commands that read and change keys."""
