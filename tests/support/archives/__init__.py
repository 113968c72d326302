"""Archives, their open tables, and the stores in which they lie."""
