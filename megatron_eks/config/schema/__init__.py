"""JSON Schemas of the two file formats, generated from the models for editors."""
