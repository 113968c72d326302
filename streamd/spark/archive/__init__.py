"""The archive: entries that are older than a hot window, moved from streams to Parquet, and put back.

    archive(path, options, ...)   move (run.py, with the order of its steps)
    restore(path, options, ...)   put a time range back into a stream (restore.py)
    delete(path, stream, ...)     take entries out for good (delete.py)
    verify_archive(...)           is everything there, and as it was written (verify.py)
    read_status(...)              how far each stream is archived, and what holds trimming back (status.py)

Below them: layout.py (paths), manifest.py (what is archived; the protocol between two archivers), lock.py and leases.py (on
the server), boundary.py (what may be archived and trimmed), parquet.py (files), staging.py (Spark, or this process), work.py
(what is done under the lock: mending, committing, rewriting files), reading.py (files, also while they are replaced).
"""
