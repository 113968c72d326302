"""From a request to its effects and reply: the base of every capability, which knows none of them by name."""
