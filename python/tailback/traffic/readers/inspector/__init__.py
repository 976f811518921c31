"""NCCL Inspector's JSON: collectives, sends, receives and network steps of every process."""
