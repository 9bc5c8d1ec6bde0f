"""Numbers for monitoring systems. Prometheus needs the extra `agentcore[metrics]`."""
