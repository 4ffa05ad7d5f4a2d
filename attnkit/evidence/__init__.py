"""Gather, judge and store evidence for claims, and answer questions with it."""
