"""Sources of commands: scenarios, traces, recordings, captures and runs."""
