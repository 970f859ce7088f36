"""Operators: one detector each, with reorder buffer, runner, and the rows that are due or deferred."""
