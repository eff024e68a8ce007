"""The page on which suspects are reviewed."""
