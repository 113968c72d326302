"""Client-side caching: which clients have read which keys, and the messages that invalidate them."""
