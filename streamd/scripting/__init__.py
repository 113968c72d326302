"""Scripts in Lua: the interpreter, what scripts find in it, and the commands that run them."""
