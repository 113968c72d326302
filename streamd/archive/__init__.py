"""The archive: entries that are older than a hot window, moved from streams to Parquet, and put back.

    archive(path, options, ...)   move (archiver.py, with the order of its steps)
    restore(path, options, ...)   put a time range back into a stream (restore.py)
    delete(path, stream, ...)     delete entries permanently (delete.py)
    publish(layout, ...)          keep it as Iceberg and Delta tables, too (publishing.py, with what it rests on)
    verify_archive(...)           is everything there, and as it was written (verify.py)
    read_status(...)              how far each stream is archived, and what prevents trimming (status.py)

Below them: store.py (folders and object stores), object_disk.py (changing what is there), staging_folder.py (where files are
written first), layout.py (paths), manifest.py and manifest_log.py (what is archived; the protocol between two archivers),
lock.py and leases.py (on the server), boundary.py (what may be archived and trimmed), parquet.py (files), commit_recovery.py (what is done under
the lock: recovering, committing, replacing files), rewriting.py and background_merge.py (new files from old ones), archived_rows.py (files, also while they are replaced), full_history.py
(archive and server as one; for Spark: spark/source/archived.py).

Open tables: kept_tables.py (which there are), open_format.py (what they say of a file), delta.py and iceberg.py (the two formats),
published_files.py and published_columns.py (what they name, and its columns).
"""
