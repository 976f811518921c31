"""PyTorch's Flight Recorder."""
