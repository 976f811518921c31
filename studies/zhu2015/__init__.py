"""Priority flow control and DCQCN: studies after Zhu et al. (SIGCOMM 2015)."""
