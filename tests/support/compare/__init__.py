"""The same to two servers: scripts, stories, dialogues and transcripts, and what may differ."""
