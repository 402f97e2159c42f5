"""One renderer per output: terminal, JSON, HTML, notebook."""
