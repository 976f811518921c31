"""Files: opening with limits, tables of text, Parquet, manifests, atomic folders."""
