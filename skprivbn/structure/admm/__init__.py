"""Continuous networks in rounds of consensus ADMM."""
