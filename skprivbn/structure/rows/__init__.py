"""Networks from rows of several parties, through tables that they add up."""
