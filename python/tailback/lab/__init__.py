"""A real network on one Linux machine, with a known fault: ``tailback lab``.

Network namespaces are the hosts and switches, veth pairs the cables, token-bucket filters their
rates, and the kernel routes packets by ECMP. A real MPI program runs across it and is traced. The
faults of the network or the program are recorded as the truth, so a diagnosis can be judged on real
packets. Needs Linux and root.
"""
