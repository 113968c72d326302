"""The command DEBUG and crash reports."""
