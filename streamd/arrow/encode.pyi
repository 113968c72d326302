from collections.abc import Sequence
from typing import final

@final
class XAddEncoder:
    """Record batches to XADD requests.

    columns      the column that each role plays, by index in the batch; -1: no such column. All of them must be utf8 or
                 binary, `fields` a list of structs of two of those, or a map
    key          of all rows; None: each row's is in `key_column`
    options      arguments between the key and the ID: NOMKSTREAM, MAXLEN ~ 1000 ...
    field_names  with `field_columns`: one field per column
    producer_id  with `idempotency_column`: `IDMP producer_id value` before the ID `*`
    producers    how many producers the idempotency keys are spread over by their hash; with more than one the producer's
                 ID is `producer_id:number`
    null_values  `omit` the field, write an `empty` value, or `fail`
    """

    def __new__(
        cls,
        *,
        key: bytes | None,
        key_column: int = -1,
        id_column: int = -1,
        fields_column: int = -1,
        field_names: Sequence[bytes] = (),
        field_columns: Sequence[int] = (),
        options: Sequence[bytes] = (),
        idempotency_column: int = -1,
        producers: int = 1,
        null_values: str = "omit",
    ) -> XAddEncoder: ...
    def encode(self, batch: object, start: int = 0, stop: int = -1, producer_id: bytes = b"") -> bytes:
        """The requests for rows [start, stop) of a pyarrow.RecordBatch, one XADD per row, in order.

        Raises ValueError naming the row for a null key, ID or idempotency key, and for a row without any field.
        """
