"""Reading and writing files: a user's arrays, atomic replacement, text that is safe to print."""
