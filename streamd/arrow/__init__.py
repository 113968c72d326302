"""Between the bytes of the protocol and Arrow record batches, compiled."""
