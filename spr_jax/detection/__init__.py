"""Finding label errors: from features, from images, with error control and cross-fitting."""
