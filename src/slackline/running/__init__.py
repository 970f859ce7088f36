"""A detector at work: its waiting room, what it is fed, and what it publishes."""
