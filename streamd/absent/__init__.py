"""Features that are not supported (modules, geo, SORT, other data types): their commands, settings and fields of INFO."""
