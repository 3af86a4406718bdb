"""Recorded steps: profiles and traces, read and moved to other devices and batches."""
