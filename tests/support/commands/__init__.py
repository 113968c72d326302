"""Commands without a server, and what is drawn for them: handlers, requests, random scripts."""
