"""What `agentcore_bench` measures, and how."""
