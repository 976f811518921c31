"""What a user names as the source of a command: a scenario, trace, recording, capture or run."""
