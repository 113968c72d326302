"""Reading: partitions of a batch, batches of a query, ranges of a stream."""
