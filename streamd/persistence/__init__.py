"""What outlives the process: writing, loading and checking snapshots, the append-only file and backups."""
