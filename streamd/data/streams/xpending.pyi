from streamd.core.context import Context

__all__: list[str] = []

def xpending(ctx: Context, args: list[bytes]) -> None: ...
