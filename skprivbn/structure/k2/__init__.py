"""K2 on discrete columns: pooled, and private between their holders."""
