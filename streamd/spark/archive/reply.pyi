from typing import Any

def encode_reply(ids: Any, fields: Any) -> bytes:
    """The reply for rows with these IDs (a StringArray) and fields (a ListArray of structs of field and value)."""
