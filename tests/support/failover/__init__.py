"""Fail-overs: rounds on clusters, and the protocol as a model."""
