"""Users, their passwords and permissions, and the command ACL."""
