"""Critics: several at once, slower ones, and averaged ones."""
