from typing_extensions import disjoint_base

from streamd.core.client import ClientHost

@disjoint_base
class OutputLimits(ClientHost):
    @property
    def replica_output_limit(self) -> int: ...
    def set_output_limit(self, output_class: int, hard: int, soft: int, soft_seconds: int) -> None: ...
