"""The harness of all experiments: runs, studies and their reports, plots, provenance, a browser."""
