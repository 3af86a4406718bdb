"""TensorFlow traces (RunMetadata) as recorded steps."""
