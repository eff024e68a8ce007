"""One short file per experiment, each a variation of `base`."""
