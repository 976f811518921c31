"""What a user writes: keys of a scenario, their ranges and their reference page."""
