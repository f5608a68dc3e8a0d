"""What a data holder runs: its site file, its rules, its records, its results."""
