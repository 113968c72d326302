"""From a request to its effects and its reply: what every capability stands on, and what knows none of them by name."""
