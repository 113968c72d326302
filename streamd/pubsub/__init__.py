"""Publish/subscribe: channels, patterns, shard channels."""
