"""Repeated steps of a program: detection, times and traffic of steps that are not simulated."""
