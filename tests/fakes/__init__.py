"""Small servers of our own that stand for services the provider speaks to."""
