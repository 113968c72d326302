"""What outlives the process: snapshots, the append-only file and backups, written, loaded and checked."""
