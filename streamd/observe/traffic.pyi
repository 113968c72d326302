from typing_extensions import disjoint_base

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.observe.rates import Rate, RecentMost

@disjoint_base
class Traffic(Capability):
    recent_input: RecentMost
    recent_output: RecentMost
    ops_per_second: Rate
    input_rate: Rate
    output_rate: Rate
    turn_rate: Rate
    turn_time_rate: Rate
    def __init__(self, host: Host) -> None: ...
