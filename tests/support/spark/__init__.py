"""What the Spark tests share, and programs that they start."""
