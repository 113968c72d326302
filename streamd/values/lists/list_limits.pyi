from typing import final

from streamd.core.capability import Capability
from streamd.core.host import Host

@final
class ListLimits(Capability):
    fill: int
    def __init__(self, host: Host) -> None: ...
