"""What clients ask about replication."""
