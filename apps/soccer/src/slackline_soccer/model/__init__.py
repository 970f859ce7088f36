"""What soccer is to the detectors: the field, the match, the events, and where lines are drawn."""
