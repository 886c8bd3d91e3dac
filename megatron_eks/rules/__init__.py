"""Pure checks of templates and manifests, whoever rendered them."""
