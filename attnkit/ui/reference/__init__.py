"""The pages Runs and Variants: what is kept, and what there is."""
