"""Looking at a running server from outside: what ails it (`streamd doctor`), and what it does now (`streamd top`)."""
