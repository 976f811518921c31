"""Records MPI programs: a library preloaded into the ranks, and a trace built from its files.

The library is C (folder ``c`` and what :mod:`tailback.recorder.wrappers` writes), compiled once
for the user's MPI library. Ranks write bounded buffers to files of their own; after the run these
become an OTF2 archive.
"""

from tailback.recorder.session import Recording, record

__all__ = ["Recording", "record"]
