"""Template tags of agentcore's pages."""
