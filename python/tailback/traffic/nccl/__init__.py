"""The messages NCCL sends for a collective: algorithm, protocol, channels, chunks."""

from tailback.traffic.nccl.choice import Choice, default_choice
from tailback.traffic.nccl.messages import CALLS, messages
from tailback.traffic.nccl.steps import COMPUTE_ONLY, Collective, GpuProgram, compile_gpu

__all__ = [
    "CALLS",
    "COMPUTE_ONLY",
    "Choice",
    "Collective",
    "GpuProgram",
    "compile_gpu",
    "default_choice",
    "messages",
]
