"""The reviewers' pages: what waits for a decision, one request in full, and the decisions themselves."""
