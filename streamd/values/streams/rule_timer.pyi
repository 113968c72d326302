from typing_extensions import disjoint_base

from streamd.core.capability import Capability
from streamd.core.host import Host

@disjoint_base
class StreamRules(Capability):
    def __init__(self, host: Host) -> None: ...
    def work(self) -> None: ...
    def catch_up(self) -> None: ...
