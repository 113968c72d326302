from typing_extensions import disjoint_base

from streamd.core.capability import Capability
from streamd.core.host import Host

@disjoint_base
class DefaultStreams(Capability):
    def __init__(self, host: Host) -> None: ...
