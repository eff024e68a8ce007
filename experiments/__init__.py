"""Tables, figures and benchmarks, each with one command; results are in `reports/`."""
