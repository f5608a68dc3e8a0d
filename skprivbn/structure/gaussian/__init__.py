"""Continuous networks from one secure sum of moments."""
