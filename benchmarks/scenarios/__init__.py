"""Simulated streams with known truth, for benchmarks, examples and tests; deterministic for their seeds.

``positions``  what a real-time locating system delivers: 36,000 positions a second, most out of order.
``kicks``      near, not_near and kick events whose hits are known.
``building``   a day of devices that depend on each other, with what is planted.
``vans``       a fleet over a mobile network: many keys of few events, dead zones, duplicates, wrong clocks.
``delayed_keys``  keys half of which lag behind, each by its own amount.
``hierarchies``, ``phase_play``  hierarchies to place on nodes, and the change between two phases of them.
``corner_kick``, ``corner_play``, ``corner_live``, ``peak_play``  more work than a node, or an engine, has time for.
"""
