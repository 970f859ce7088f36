"""Nodes: a hierarchy spread over machines, and detectors that move while they run."""
