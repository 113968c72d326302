"""Delivery: rules for the groups of streams, which say when a pending entry is given up, and where it goes then."""
