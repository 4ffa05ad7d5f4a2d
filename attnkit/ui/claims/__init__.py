"""The page Questions: evidence for claims, and claims that visitors run again."""
