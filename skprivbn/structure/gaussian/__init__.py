"""Continuous networks from secure sums of moments."""
