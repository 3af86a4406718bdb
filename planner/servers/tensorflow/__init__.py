"""TensorFlow traces (timeline JSON and RunMetadata) as recorded steps."""
