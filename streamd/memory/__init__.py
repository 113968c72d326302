"""What memory is used for, its limit, and what is evicted when that is reached."""
