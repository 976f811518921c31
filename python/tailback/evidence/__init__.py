"""Evidence of what really happened."""
