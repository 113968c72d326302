ACCESS_MODES: dict[str, int]
