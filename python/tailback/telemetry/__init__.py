"""What the samples say: estimates of traffic and congestion, with their confidence."""
