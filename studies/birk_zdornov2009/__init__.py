"""Figures of Birk and Zdornov (2009): permutations, computed rates, congestion control."""
