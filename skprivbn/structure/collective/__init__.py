"""One network of columns that several sites hold, learnt at sites and across."""
