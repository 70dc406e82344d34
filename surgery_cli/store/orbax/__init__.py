"""Orbax's layouts as they lie on disk: sidecars, zarr documents, OCDBT, a directory per leaf."""
