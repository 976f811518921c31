"""Runs, fabrics, traces and files that several tests are built on."""
