"""The page Atlas: choices, sections, and models of visitors."""
