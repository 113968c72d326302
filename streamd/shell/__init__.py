"""A client of any server of the protocol: the connection, and the prompt of `streamd cli`."""
