"""Simulations on several processes, a Dask cluster or a batch system."""
