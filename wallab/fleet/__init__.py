"""Several hosts that measure one run, on Dask: only what runs on them imports that."""
