from typing import final

@final
class StreamRemains:
    def free(self) -> None: ...
