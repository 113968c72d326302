"""The commands of streams and consumer groups, from arguments to RESP."""
