"""The figures, one a file; importing this package registers them all."""

from tailback.registry import import_parts

import_parts(__name__, __path__)
